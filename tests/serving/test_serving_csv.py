"""Queries in CSV files over HTTP: read as by the command line, within the limits of a body."""

import gzip
import logging
import socket
import tempfile
from urllib.parse import unquote

import pytest

import serving_tools as tools
from command_line import shown
from serving_tools import NAMES, make_named
from store_tools import Q
from vicinal.errors import InvalidInput
from vicinal.features import TableSchema, rows_from_schema
from vicinal.serving import ServiceSettings, _csv
from vicinal.serving._limits import BodyLimits
from vicinal.serving._problems import Problem
from vicinal.store import Store, StoreExtractor

CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    settings = ServiceSettings(rate=0, wait_ms=1.0, request_queries=8)
    folder = tmp_path_factory.mktemp("uploads") / "store"
    with tools.running(folder, settings, make_named) as running_service:
        yield running_service


def write_csv(n_rows, delimiter=",", names=NAMES, first=0):
    """Return the bytes of a CSV file with a column `visit` and queries from number `first` on."""
    queries = Q[first : first + n_rows].tolist()
    rows = [["visit", *names], *([f"+V{i}!", *map(str, row)] for i, row in enumerate(queries))]
    return "".join(delimiter.join(row) + "\n" for row in rows).encode()


def test_an_upload_gets_sets_of_a_coverage_with_their_promise(service):
    path = "/v1/predict-csv?coverage="
    used = service.store.quota().used
    for bad in ("2", "nan", "high", "", ".9&coverage=.8"):
        assert service.call("POST", path + bad, write_csv(3), headers=CSV).status == 422
    assert service.call("POST", f"{path}.9", write_csv(3), headers=CSV).status == 422
    assert service.store.quota().used == used, "there is no calibration"
    service.store.predict(Q[:3])
    service.store.evaluate(
        Q[:3], [0, 1, 0], ["a", "b", "c"], share=1, accept_noise=True, coverage="overall"
    )
    reply = service.call("POST", f"{path}.9&id=visit", write_csv(3), headers=CSV)
    header, *rows = reply.body.splitlines()
    assert header.startswith("visit,label,")
    assert header.endswith(",set")
    assert len(rows) == 3
    assert reply.headers["Vicinal-Charged"] == "0"
    assert "sets contain at least 0.9 of future" in unquote(reply.headers["Vicinal-Promise"])
    named_set = write_csv(3).replace(b"visit", b"set")
    clash = service.call("POST", f"{path}.9&id=set", named_set, headers=CSV)
    assert clash.status == 422, "the copied column has the name of an answer"


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_the_answers_are_those_of_the_command_line(tmp_path, delimiter):
    """Fails if the service reads a file, or writes answers, unlike `vicinal predict`."""
    content = write_csv(3, delimiter)
    with tools.running(tmp_path / "store", make=make_named) as service:
        path = "/v1/predict-csv?id=visit"
        reply = service.call("POST", path, content, headers=CSV)
        assert (reply.status, reply.headers.get_content_type()) == (200, "text/csv")
        assert (reply.headers["Vicinal-Charged"], reply.headers["Vicinal-Left"]) == ("3", "57")
        repeated = service.call("POST", path, content, headers=CSV)
        assert (repeated.body, repeated.headers["Vicinal-Charged"]) == (reply.body, "0")
    queries = tmp_path / "queries.csv"
    queries.write_bytes(content)
    options = ("--data", queries, "--id", "visit", "--analyst", "anna", "--out", "-", "--quiet")
    assert shown("predict", tmp_path / "store", *options) == reply.body
    assert reply.body.splitlines()[1].startswith("'+V0!,")
    with Store.open(tmp_path / "store") as store:
        assert store.quota().used == 3


@pytest.mark.parametrize(
    ("content", "status", "text"),
    [
        (write_csv(9), 413, "at most 8 rows"),
        (b"," * 5000, 413, "too many cells"),
        (b"x" * 6000, 413, "bytes"),
        (write_csv(0), 422, ""),
        (write_csv(2, names=[*NAMES[:-1], "other"]), 422, NAMES[-1]),
        (write_csv(1).replace(b"+V0!", b'"'), 422, "The uploaded file is damaged"),
        (b"", 422, ""),
        (b"\xff\xfe\x00" + write_csv(1), 422, "The uploaded file"),
        (gzip.compress(write_csv(1), mtime=0), 422, "The uploaded file"),
        (b"PK\x03\x04" + write_csv(1), 422, "This is an Excel workbook, or another archive."),
        (b"\xd0\xcf\x11\xe0" + write_csv(1), 422, "Save it as CSV"),
        (b"n0," + write_csv(1), 422, "a title above the header.)"),
        (write_csv(1).replace(b"visit", b"n0"), 422, "column 1 and column 2"),
        (b"\r" * 5000, 413, "too many cells"),
    ],
)
def test_unusable_files_are_refused_and_not_charged(service, caplog, content, status, text):
    """Fails if a file beyond a limit is read, or if a reply or a log shows a cell or a folder."""
    used = service.store.quota().used
    with caplog.at_level(logging.DEBUG):
        reply = service.call("POST", "/v1/predict-csv?id=visit", content, headers=CSV)
    assert reply.status == status
    assert text in reply.body["detail"]
    for shown_text in (reply.body["detail"], caplog.text):
        assert "+V" not in shown_text
        assert "--" not in shown_text
        assert tempfile.gettempdir() not in shown_text
    assert service.store.quota().used == used


def test_rows_of_a_table_keep_their_encoding_and_are_not_logged(tmp_path, caplog, recwarn):
    """Fails if an unusual file is read differently, or a warning shows cells in the log."""
    rows = "näme,ward,age\n=1+1,east,5\n" + "Grün,nörd,\n" * 3
    schema = {
        "format": "vicinal table schema",
        "version": 1,
        "columns": {
            "ward": {"kind": "category", "values": ["east", "west"]},
            "age": {"kind": "whole", "low": 0, "high": 100},
        },
    }
    extractor = StoreExtractor("table", {"schema": schema})
    points, public = (rows_from_schema(TableSchema.from_dict(schema), 20, seed) for seed in (1, 2))

    def make_table_store(folder):
        return Store.init(
            folder, points, [0, 1] * 10, classes=[0, 1], public=extractor.transform(public),
            epsilon=8.0, extractor=extractor, n_records=20, n_neighbors=5, noise_multiplier=0.5,
            n_queries=9,
        )  # fmt: skip

    replies = []
    with tools.running(tmp_path / "store", make=make_table_store) as service:
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
            content = rows.encode(encoding)
            replies.append(
                service.call("POST", "/v1/predict-csv?id=n%C3%A4me", content, headers=CSV)
            )
        failing = rows.replace("5", "five").encode()
        refused = service.call("POST", "/v1/predict-csv?id=n%C3%A4me", failing, headers=CSV)
        empty = service.call("POST", "/v1/predict-csv", b"ward,age\neast,5\n,\n", headers=CSV)
        form = service.call("POST", "/v1/predict", {"rows": [{"ward": None, "age": None}]})
        assert service.store.quota().used == 2
        with pytest.raises(InvalidInput, match="must have a value in at least one column"):
            service.store.predict([{"ward": "east", "age": 5}, {"ward": None, "age": None}])
    assert [reply.status for reply in replies] == [200] * 4
    assert {reply.body for reply in replies} == {replies[0].body}
    assert [reply.headers["Vicinal-Charged"] for reply in replies] == ["2", "0", "0", "0"]
    assert [line.split(",")[0] for line in replies[0].body.splitlines()] == [
        "näme",
        "'=1+1",
        *["Grün"] * 3,
    ]
    assert (refused.status, "'age'" in refused.body["detail"]) == (422, True)
    assert "declare" not in refused.body["detail"], "a client cannot change the schema"
    for reply, row in ((empty, 2), (form, 1)):
        assert reply.status == 422
        assert f"at least one column of the schema. Row {row} has none" in reply.body["detail"]
    assert "five" not in refused.body["detail"] + caplog.text
    assert "nörd" not in caplog.text
    assert not recwarn.list


def test_a_client_that_disconnects_is_charged_once(service):
    """Fails if an aborted upload occupies memory, or its repetition with the key is charged."""
    content = write_csv(3, first=20)
    used = service.store.quota().used
    free_bytes = service.app.state.service.body_reader._available_bytes
    head = (
        "POST /v1/predict-csv HTTP/1.1\r\nHost: test\r\nContent-Type: text/csv\r\n"
        f"Authorization: Bearer {service.keys['analyst']}\r\nIdempotency-Key: monday\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode()
    for sent in (content[:20], content):
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(head + sent)
    headers = CSV | {"Idempotency-Key": "monday"}
    reply = service.call("POST", "/v1/predict-csv", content, headers=headers)
    assert (reply.status, len(reply.body.splitlines())) == (200, 4)
    assert service.store.quota().used == used + 3
    assert service.app.state.service.body_reader._available_bytes == free_bytes


def test_rows_of_an_upload_are_in_no_named_file(tmp_path, monkeypatch):
    """Fails if a process that is killed while it reads an upload leaves its rows on the disk."""
    if not _csv._OPEN_FILES.is_dir():
        pytest.skip("only Linux has files without a name")
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    read_queries, found = _csv.read_queries, []

    def read_and_list(path, *arguments, **options):
        found.extend(path.parent.iterdir())
        found.extend(file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
        return read_queries(path, *arguments, **options)

    monkeypatch.setattr(_csv, "read_queries", read_and_list)
    with make_named(tmp_path / "store") as store:
        assert _csv.decode_csv(write_csv(3), store, "visit", 10)[2] == 3
    assert [file.name for file in found] == ["queries.csv"]
    assert not list(folder.iterdir())


def test_a_wide_line_is_refused_before_it_is_read():
    """Reading a header of 100,000 columns takes ten seconds; a quoted line break may hide it."""
    limits = BodyLimits(1 << 20, 1 << 20)
    limits.check_cells(b"a;b\n1;2\n" + b",".join([b"x"] * 10_000))
    for start in (b"", b'"\n",'):
        with pytest.raises(Problem) as caught:
            limits.check_cells(start + b",".join([b"x"] * 10_001) + b"\n1")
        assert caught.value.status == 413


def test_parameters_and_media_types_are_checked(service):
    used = service.store.quota().used
    for query in ("?id=", "?ID=visit", "?id=visit&id=visit"):
        reply = service.call("POST", f"/v1/predict-csv{query}", write_csv(1), headers=CSV)
        assert reply.status == 422
    assert "'id'" in reply.body["detail"]
    assert service.call("POST", "/v1/predict-csv", write_csv(1)).status == 415
    reply = service.call("POST", "/v1/predict-csv", write_csv(1), key=None, headers=CSV)
    assert reply.status == 401
    reply = service.call("POST", "/v1/predict-csv?id=none", write_csv(1), headers=CSV)
    assert (reply.status, "no column 'none'" in reply.body["detail"]) == (422, True)
    assert service.store.quota().used == used
