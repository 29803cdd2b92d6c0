"""Requests made of the OpenAPI document: answers are what it says, and none is a fault of ours."""

import pytest

pytest.importorskip("schemathesis")

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.config import SchemathesisConfig

import serving_tools as tools
from store_tools import PLAN
from vicinal.serving.settings import ServiceSettings

CALM = ServiceSettings(rate=0, wait_ms=0.0)
GET = [
    "/v1/guarantee", "/v1/quota", "/v1/status", "/v1/history", "/healthz", "/metrics",
]  # fmt: skip
OPERATIONS = [
    ("POST", "/v1/predict"), ("POST", "/v1/records"), ("DELETE", "/v1/subjects/{subject}"),
    *(("GET", path) for path in GET),
]  # fmt: skip
TOLD, NOT_TOLD = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
TRIED = [
    *((*operation, TOLD) for operation in OPERATIONS),
    *((*operation, NOT_TOLD) for operation in OPERATIONS if operation[0] != "GET"),
]

# A document cannot say how long a vector of this store is, so a good body may be refused.
UNSAID = [schemathesis.checks.positive_data_acceptance]

# As schemathesis has it, and 413: a bad body that is too long bounces for its length.
BOUNCED = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [
        "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx",
    ]}}}
)  # fmt: skip


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service that listens, with more answers than will be asked for."""
    folder = tmp_path_factory.mktemp("schemathesis") / "store"
    with tools.running(folder, CALM, **{**PLAN, "n_queries": 10**6}) as found:
        yield found


@pytest.fixture(scope="module")
def document(service):
    url = f"http://127.0.0.1:{service.port}/openapi.json"
    return schemathesis.openapi.from_url(url, config=BOUNCED)


def test_every_operation_is_tried(document):
    found = {(o.ok().method.upper(), o.ok().path) for o in document.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path", "mode"), TRIED)
def test_answers_are_what_the_document_says(document, service, method, path, mode):
    """Statuses, types and bodies are documented; nothing goes without a key; bad bodies bounce."""
    key = {"Authorization": f"Bearer {service.keys['curator']}"}
    operation = document[path][method]
    count = 30 if method == "POST" else 10

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def tried(case):
        case.call_and_validate(headers=key, excluded_checks=UNSAID)

    tried()
    assert service.call("GET", "/healthz").status == 200
