"""Requests generated from the OpenAPI document: every response conforms to it, none is a 500."""

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.config import SchemathesisConfig

import serving_tools as tools
from store_tools import PLAN
from vicinal.serving.settings import ServiceSettings

UNLIMITED = ServiceSettings(rate=0, wait_ms=0.0)
GET = [
    "/v1/guarantee", "/v1/quota", "/v1/status", "/v1/history", "/healthz", "/metrics",
]  # fmt: skip
OPERATIONS = [
    ("POST", "/v1/predict"), ("POST", "/v1/predict-csv"), ("POST", "/v1/records"),
    ("DELETE", "/v1/subjects/{subject}"),
    *(("GET", path) for path in GET),
]  # fmt: skip
VALID = schemathesis.GenerationMode.POSITIVE
INVALID = schemathesis.GenerationMode.NEGATIVE
CASES = [
    *((*operation, VALID) for operation in OPERATIONS),
    *((*operation, INVALID) for operation in OPERATIONS if operation[0] != "GET"),
]

# The document does not contain the vector length of the store, so valid bodies may be refused.
EXCLUDED_CHECKS = [schemathesis.checks.positive_data_acceptance]

# The default statuses and 413: an invalid body may be refused for its length.
CONFIG = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [
        "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx",
    ]}}}
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A running service with a plan of more answers than the tests use."""
    folder = tmp_path_factory.mktemp("schemathesis") / "store"
    with tools.running(folder, UNLIMITED, **{**PLAN, "n_queries": 10**6}) as running_service:
        yield running_service


@pytest.fixture(scope="module")
def document(service):
    url = f"http://127.0.0.1:{service.port}/openapi.json"
    return schemathesis.openapi.from_url(url, config=CONFIG)


def test_every_operation_is_tried(document):
    operations = (result.ok() for result in document.get_all_operations())
    assert {(operation.method.upper(), operation.path) for operation in operations} == set(
        OPERATIONS
    )


@pytest.mark.parametrize(("method", "path", "mode"), CASES)
def test_answers_are_what_the_document_says(document, service, method, path, mode):
    """Fails if a status, type or body is not documented, or if an invalid body is accepted."""
    key = {"Authorization": f"Bearer {service.keys['curator']}"}
    operation = document[path][method]
    count = 30 if method == "POST" else 10

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def check_case(case):
        case.call_and_validate(headers=key, excluded_checks=EXCLUDED_CHECKS)

    check_case()
    assert service.call("GET", "/healthz").status == 200
