"""A store of table rows through the service: description of columns, and errors of rows."""

from urllib.parse import unquote

import numpy as np
import pytest

from serving_tools import running
from vicinal.features import TableSchema, rows_from_schema
from vicinal.store import Store, StoreExtractor

COLUMNS = {
    "age": {"kind": "whole", "low": 0, "high": 100},
    "ward": {"kind": "category", "values": ["east", "west"]},
    "grade": {"kind": "levels", "values": [1, 2, 3]},
    "smokes": {"kind": "yes_no"},
    "seen": {"kind": "date", "low": "2020-01-01", "high": "2026-01-01"},
    "came": {
        "kind": "date",
        "low": "2020-01-01",
        "high": "2026-01-01",
        "time": True,
        "zone": "UTC",
    },
    "clock": {"kind": "time"},
    "stay": {"kind": "duration", "low": 0, "high": 7200, "missing_values": ["?", -9]},
}
SCHEMA = {"format": "vicinal table schema", "version": 1, "columns": COLUMNS}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "store"
    with running(folder, make=make_store) as running_service:
        yield running_service


def make_store(folder):
    rows, public = (rows_from_schema(TableSchema.from_dict(SCHEMA), 60, seed) for seed in (1, 2))
    extractor = StoreExtractor("table", {"schema": SCHEMA})
    labels = np.arange(60) % 2
    return Store.init(
        folder, rows, labels, classes=[0, 1], public=extractor.transform(public), epsilon=8.0,
        extractor=extractor, n_records=60, n_neighbors=5, noise_multiplier=0.5, n_queries=60,
    )  # fmt: skip


def test_the_status_declares_what_a_form_by_column_name_needs(service):
    columns = service.call("GET", "/v1/status").body["columns"]
    assert [c["name"] for c in columns] == list(COLUMNS)
    values = {c["name"]: c["values"] for c in columns}
    assert values["age"] is values["seen"] is None
    assert values["ward"] == ["east", "west", "(other)"]
    assert values["grade"] == ["1", "2", "3"]
    row = {"age": 5, "seen": "2021-02-03", **{n: v[-1] for n, v in values.items() if v}}
    assert {c["name"]: c["kind"] for c in columns}["came"] == "moment"
    row |= {"came": "2021-02-03T14:30+01:00", "clock": "2:30 PM", "stay": "PT5M"}
    for query in (
        row,
        {**dict.fromkeys(COLUMNS), "age": 5},
        {**row, "stay": "?"},
        {**row, "stay": -9},
    ):
        reply = service.call("POST", "/v1/predict", {"rows": [query]})
        assert reply.status == 200, reply.body


@pytest.mark.parametrize("change", [{"age": "secret"}, {"seen": "secret"}])
def test_a_row_that_does_not_fit_names_column_and_row_and_no_value(service, change):
    row = {"age": 5, "ward": "east", "grade": 1, "smokes": True, "seen": "2021-02-03"}
    row |= dict.fromkeys(("came", "clock", "stay"))
    records = {"rows": [{**row, **change}], "labels": [0]}
    assert service.call("POST", "/v1/predict", {"rows": [row]}).status == 200
    for path, body, key, at in (
        ("/v1/predict", {"rows": [row, {**row, **change}]}, "analyst", 2),
        ("/v1/records", records, "curator", 1),
    ):
        reply = service.call("POST", path, body, key)
        assert (reply.status, reply.body["type"].rpartition("/")[2]) == (422, "unusable")
        assert f"The column '{next(iter(change))}' " in reply.body["detail"]
        assert f"in row {at}. " in reply.body["detail"]
        assert "GET /v1/status" in reply.body["detail"]
        assert "secret" not in str(reply.body)
    reply = service.call("POST", "/v1/predict", {"rows": [row, {**row, "ward": ["secret"]}]})
    assert "The field 'rows', row 2, is not" in reply.body["detail"]


def test_values_that_count_as_others_are_reported(service):
    """Fails if an age of 850 years or a misspelt ward is answered without a note."""
    row = {**dict.fromkeys(COLUMNS), "age": 50, "ward": "west"}
    usual = service.call("POST", "/v1/predict", {"rows": [row]})
    assert "notes" not in usual.body
    wrong = [{**row, "age": 850, "ward": " West"}, row, row]
    reply = service.call("POST", "/v1/predict", {"rows": wrong})
    assert reply.status == 200
    notes = " ".join(reply.body["notes"])
    assert "column 'ward': 1 row holds declared values in another spelling" in notes
    assert "outside the declared bounds count as the nearest bound" in notes
    assert "'age' (1)." in notes
    lines = [",".join(COLUMNS), *(f"{age},west,,,,,," for age in (850, 3, 4))]
    content = "\n".join(lines).encode()
    csv = service.call("POST", "/v1/predict-csv", content, headers={"Content-Type": "text/csv"})
    assert csv.status == 200
    assert "'age' (1)." in unquote(csv.headers["Vicinal-Notes"])
