"""The HTTP service: permissions of roles, charges, refusals, logs and metrics."""

import json
import logging
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

import serving_tools as tools
from made_up import raising
from store_tools import PLAN, Q, X, points
from vicinal.errors import InvalidInput, redirect_warnings, warn_caller
from vicinal.serving.keys import KeyFile
from vicinal.serving.settings import ServiceSettings

ROWS = Q.tolist()
SECURITY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-frame-options": "DENY",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service shared by the tests that do not depend on the number of answers."""
    with tools.running(
        tmp_path_factory.mktemp("serving") / "store", n_queries=5000
    ) as running_service:
        yield running_service


def test_an_answer_is_charged_once_whatever_is_repeated(service):
    first = service.predict(ROWS[:3], name="once")
    assert first.status == 200
    assert first.body["charged"] == 3
    stored = service.store.predict(Q[:3], analyst="anna").to_dict()
    names = "labels", "votes", "confidence"
    assert [first.body[name] for name in names] == [stored[name] for name in names]
    assert service.predict(ROWS[:3], name="once").body == {**first.body, "charged": 0}
    assert service.predict(ROWS[:3]).body["charged"] == 0
    used = service.call("GET", "/v1/quota").body["mine"]["used"]
    assert used == service.store.quota("anna").analyst_used == 3
    assert service.predict(ROWS[3:5], name="once").status == 409


CURATORS = [
    ("GET", "/v1/history", None),
    ("POST", "/v1/records", {"vectors": [[1, 2, 3, 4]], "labels": [0]}),
    ("DELETE", "/v1/subjects/person-9", None),
]
ANALYSTS = [
    ("POST", "/v1/predict", {"vectors": ROWS[:1]}),
    ("GET", "/v1/guarantee", None),
    ("GET", "/v1/quota", None),
    ("GET", "/v1/status", None),
]
MONITORS = [("GET", "/metrics", None)]


@pytest.mark.parametrize(("method", "path", "body"), CURATORS + ANALYSTS + MONITORS)
def test_nothing_without_a_valid_key(service, method, path, body):
    key = service.keys["analyst"]
    altered_key = key[:-1] + ("0" if key[-1] != "0" else "1")
    for wrong in (
        None,
        "",
        "vic_",
        altered_key,
        key.upper(),
        key + "0",
        "é" * len(key),
        "x" * 5000,
    ):
        reply = service.call(method, path, body, key=wrong)
        assert reply.status == 401, wrong
        assert reply.headers["www-authenticate"] == "Bearer"
    basic = service.call(method, path, body, None, {"Authorization": f"Basic {key}"})
    assert basic.status == 401


@pytest.mark.parametrize(("method", "path", "body"), CURATORS)
def test_analysts_change_nothing(service, method, path, body):
    version = service.store.facts()["version"]
    assert service.call(method, path, body).status == 403
    assert service.store.facts()["version"] == version


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/console", "/openapi.json", "/nowhere"])
def test_headers_are_on_every_response(service, path):
    headers = service.call("GET", path, key=None).headers
    assert {name: headers[name] for name in SECURITY} == SECURITY
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "'unsafe" not in headers["content-security-policy"]
    assert "server" not in headers
    cross = service.call("OPTIONS", path, None, None, {"Origin": "https://elsewhere.example"})
    assert not [name for name in cross.headers if name.startswith("access-control")]


def test_the_guarantee_is_told_whole(service):
    body = service.call("GET", "/v1/guarantee").body
    expected = json.loads(json.dumps(service.store.guarantee().to_dict()))
    assert body == {"audience": "default", "guarantee": expected}


def test_analysts_see_their_own_audience_and_curators_all(tmp_path):
    with tools.running(tmp_path / "store") as service:
        service.store.open_audience("others", **PLAN)
        service.store.allow("anna", 5)
        mine = service.call("GET", "/v1/quota").body
        assert mine["mine"]["left"] == 5
        assert list(mine["audiences"]) == ["default"]
        all_quotas = service.call("GET", "/v1/quota", key="curator").body
        assert set(all_quotas["audiences"]) == {"default", "others"}
        assert service.predict(ROWS[:6]).status == 403
        reply = service.predict(ROWS[:3])
        assert (reply.status, reply.body["left"]) == (200, 2)
        assert service.predict(ROWS[:5]).body["left"] == 0
        assert service.call("GET", "/v1/quota").body["mine"]["left"] == 0
        mine = service.call("GET", "/v1/quota", key="curator").body["mine"]
        assert (mine["quota"], mine["left"]) == (None, service.store.quota().left)


def test_a_curator_adds_and_erases(tmp_path):
    with tools.running(tmp_path / "store") as service:
        version = service.store.facts()["version"]
        records = {"vectors": points(4, 7)[0].tolist(), "labels": [0, 1, 2, 0]}
        added = service.call(
            "POST", "/v1/records", {**records, "subjects": [7, 7, 8, 9]}, "curator"
        )
        assert (added.status, added.body) == (200, {"done": "added", "version": version + 1})
        unusual = {"vectors": records["vectors"][:1], "labels": [0], "subjects": ["a/b c?"]}
        assert service.call("POST", "/v1/records", unusual, "curator").status == 200
        similar = {**unusual, "subjects": ["A/B C?"]}
        refused = service.call("POST", "/v1/records", similar, "curator")
        assert (refused.status, refused.body["type"].rpartition("/")[2]) == (409, "ids-alike")
        assert "'ids_differ': true" in refused.body["detail"]
        similar = {**similar, "subjects": ["007"], "ids_differ": True}
        assert service.call("POST", "/v1/records", similar, "curator").status == 200
        for subject in ("person-3", "7", "nobody", "a%2Fb%20c%3F"):
            erased = service.call("DELETE", f"/v1/subjects/{subject}", key="curator")
            assert (erased.status, erased.body["done"]) == (200, "erased")
        repeated = service.call("DELETE", "/v1/subjects/7?outcome=true", key="curator")
        assert repeated.body["outcome"] == {
            "enrolled": 0, "erased": 1, "unknown": 0, "similar": 0,
        }  # fmt: skip
        for wrong in ("out=true", "outcome=true&outcome=true", "outcome=both", "kind=text"):
            reply = service.call("DELETE", f"/v1/subjects/8?{wrong}", key="curator")
            assert reply.status == 422
        enrolled = service.store._store.ledger.slot_table.slot_of
        assert {8, 9} <= enrolled.keys()
        assert not {7, "person-3", "a/b c?"} & enrolled.keys()
        assert service.store.verify(["person-3", 7])
        history = service.call("GET", "/v1/history", key="curator").body["history"]
        assert [change["what"] for change in history[-6:]] == ["add"] + ["erase"] * 5


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [0]}, {"labels": [0, 9]}, {"labels": ["a", 0]}, {"labels": [True, 0]},
        {"subjects": ["a"]}, {"subjects": [1.5, 2]}, {"subjects": None}, {"subjects": ["a", ""]},
        {"subjects": ["a", "b\n"]}, {"subjects": ["a", "b\nc"]}, {"subjects": ["a", "b/../c"]},
        {"subjects": ["a", " b"]}, {"subjects": ["a", "\u200bb"]}, {"subjects": ["a", "."]},
        {"subjects": ["a" * 301, "b"]}, {"vectors": [[0] * 4]}, {"vectors": [[0] * 3] * 2},
        {"vectors": []}, {"texts": ["a", "b"]}, {"more": 1},
    ],
)  # fmt: skip
def test_unusable_records_change_nothing(service, change):
    good = {"vectors": X[:2].tolist(), "labels": [0, 1], "subjects": ["a", "b"]}
    version = service.store.facts()["version"]
    reply = service.call("POST", "/v1/records", {**good, **change}, "curator")
    assert reply.status == 422
    assert reply.headers["content-type"] == "application/problem+json"
    assert service.store.facts()["version"] == version


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (
            b'{"vectors": [[0, 0]], "coverage": 90}',
            "'coverage' is not valid for this path: it must be less than 1.",
        ),
        (
            b'{"vectors": [[0, 0]], "secret": 1}',
            "only these fields: vectors, images, texts, rows, coverage.",
        ),
        (
            b'{"vectors": [["secret"]]}',
            "row 1, column 1, is not valid for this path: it must be a valid number",
        ),
        (
            b"{}",
            "this path: it must have exactly one of the fields vectors, images, texts and rows.",
        ),
        (b'{"vectors": [[0, 0]', "The body is not valid for this path: Invalid JSON: EOF"),
    ],
)
def test_the_reason_of_a_refusal_is_in_plain_words(service, body, advice):
    """Fails if a reply names a type of pydantic, or quotes the body."""
    detail = service.call("POST", "/v1/predict", body).body["detail"]
    assert advice in detail
    assert "secret" not in detail


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"vectors": [[NaN, 0, 0, 0]]}',
        b'{"vectors": [[1e999, 0, 0, 0]]}', b'{"vectors": [[1e31, 0, 0, 0]]}',
        b'{"vectors": [["1", 0, 0, 0]]}', b'{"vectors": [[true, 0, 0, 0]]}',
        b'{"vectors": [[0, 0, 0]]}', b'{"vectors": [[]]}', b'{"vectors": [[0,0,0,0],[0,0,0]]}',
        b'{"images": [[[0]]]}', b'{"texts": ["a"]}', b'{"texts": ["\\ud800"]}', b"{}",
        b'{"vectors": [[0,0,0,1]], "audience": "default"}', b"[" * 100_000,
    ],
)  # fmt: skip
def test_unusable_queries_cost_nothing(service, body):
    used = service.store.quota().used
    reply = service.call("POST", "/v1/predict", body)
    assert reply.status == 422
    assert service.store.quota().used == used


@pytest.mark.parametrize("path", ["M%FCller", "M%EF%BF%BDller", "%C0%AF", "%ED%A0%80", "a/%80"])
def test_a_path_that_is_not_utf_8_names_nobody(service, path):
    """Fails if %FC is decoded to U+FFFD: then another subject than Müller would be erased."""
    version = service.store.facts()["version"]
    for query in ("", "?outcome=true"):
        reply = service.call("DELETE", f"/v1/subjects/{path}{query}", key="curator")
        assert (reply.status, reply.body["type"].rpartition("/")[2]) == (422, "unusable")
        assert "UTF-8" in reply.body["detail"]
    records = {"vectors": X[:1].tolist(), "labels": [0], "subjects": ["M\ufffdller"]}
    assert service.call("POST", "/v1/records", records, "curator").status == 422
    assert service.store.facts()["version"] == version


@pytest.mark.parametrize(
    "body",
    [
        b'{"vectors": [[0,0,0,1]], "vectors": [[0,0,0,2]]}',
        b'{"vectors": [[0,0,0,1]], "\\u0076ectors": [[0,0,0,2]]}',
        b'{"vectors": 1' + b"0" * 4299 + b', "vectors": [[0,0,0,2]]}',
        b'{"rows": null, "vectors": [[0,0,0,2]], "rows": null}',
        b'{"rows": [{"a": 1, "b": "x", "a": 2}]}',
    ],
)  # fmt: skip
def test_a_repeated_key_is_refused(service, body):
    used = service.store.quota().used
    reply = service.call("POST", "/v1/predict", body)
    assert (reply.status, reply.body["type"].rpartition("/")[2]) == (400, "repeated-key")
    assert service.store.quota().used == used
    body = b'{"vectors": [[0,0,0,1]], "labels": [0], "subjects": ["a"], "subjects": ["b"]}'
    version = service.store.facts()["version"]
    assert service.call("POST", "/v1/records", body, "curator").status == 400
    assert service.store.facts()["version"] == version


def test_http_1_1_needs_one_host(service):
    for version, hosts, status in ((1, 0, 400), (1, 1, 200), (1, 2, 400), (0, 0, 200)):
        head = b"GET /healthz HTTP/1.%d\r\n" % version + hosts * b"Host: a\r\n"
        assert _send_raw(service.port, head + b"\r\n").split()[1] == b"%d" % status


def test_a_transfer_encoding_other_than_chunked_is_refused_before_routing(service):
    """Fails if a route that reads no body, or needs no key, answers such a request."""
    n_answered = service.store.quota().used
    routes = ("GET /healthz", "GET /metrics", "GET /nowhere", "HEAD /readyz", "POST /v1/predict")
    for route in routes:
        for encodings in (("gzip, chunked",), ("gzip", "chunked")):
            lines = [f"{route} HTTP/1.1", "Host: a", "Content-Type: application/json"]
            lines += [f"Transfer-Encoding: {encoding}" for encoding in encodings]
            reply = _send_raw(
                service.port, "\r\n".join([*lines, "", "2\r\n{}\r\n0", "", ""]).encode()
            )
            assert reply.split()[1] == b"501", (route, encodings)
            assert b"\r\nconnection: close\r\n" in reply
            assert reply.endswith(b'alone."}')
        usual = [f"{route} HTTP/1.1", "Host: a", "Transfer-Encoding: Chunked", "", "0", "", ""]
        assert b" 501 " not in _send_raw(service.port, "\r\n".join(usual).encode())
    assert service.store.quota().used == n_answered


def test_bodies_are_refused_while_they_are_read(tmp_path):
    limits = ServiceSettings(rate=0, body_bytes=2000, request_queries=8, body_seconds=0.3)
    with tools.running(tmp_path / "store", limits) as service:
        assert service.predict(ROWS * 5).status == 413
        assert service.predict([[0, 0, 0, 1]] * 9).status == 413
        other = {"Content-Type": "a/b"}
        assert service.call("POST", "/v1/predict", b"{}", headers=other).status == 415
        head = "POST /v1/predict HTTP/1.1\r\nHost: a\r\n"
        head += f"Authorization: Bearer {service.keys['analyst']}"
        head += "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"3e8\r\n" + b" " * 1000 + b"\r\n"
        assert b" 413 " in _send_raw(service.port, head.encode() + 3 * chunk)
        assert b" 408 " in _send_raw(service.port, head.encode() + chunk)
        assert service.store.quota().used == 0


def _send_raw(port, content):
    with socket.create_connection(("127.0.0.1", port), timeout=80) as connection:
        connection.sendall(content)
        return connection.recv(1000)


def test_a_key_may_not_come_too_often(tmp_path):
    with tools.running(tmp_path / "store", ServiceSettings(rate=0.001, burst=3)) as service:
        statuses = [service.call("GET", "/v1/guarantee").status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]
        late = service.call("GET", "/v1/guarantee")
        assert int(late.headers["retry-after"]) >= 900
        assert service.call("GET", "/v1/guarantee", key="curator").status == 200


def test_a_fault_of_ours_shows_nothing(tmp_path, monkeypatch, caplog):
    with tools.running(tmp_path / "store") as service:
        failing = raising(RuntimeError("canary-7781"))
        monkeypatch.setattr(service.store, "predict_many", failing)
        monkeypatch.setattr(service.store, "quota", failing)
        for reply in (service.predict(ROWS[:1]), service.call("GET", "/v1/quota")):
            assert reply.status == 500
            assert reply.body["type"].endswith("/internal")
            assert "canary" not in json.dumps(reply.body)
        assert "RuntimeError at" in caplog.text
        assert "canary" not in caplog.text
        assert service.call("GET", "/healthz", key=None).status == 200


def test_logs_and_metrics_name_no_person_and_no_number_of_theirs(service, caplog):
    caplog.set_level(logging.DEBUG)
    service.call("DELETE", "/v1/subjects/canary-5512?outcome=true", key="curator")
    service.predict([[5512.25, 0, 0, 1]], name="canary-name")
    metrics = service.call("GET", "/metrics", key="curator").body
    for text in (caplog.text, metrics):
        assert "canary" not in text
        assert "5512" not in text
        assert "/v1/subjects/{subject}" in text
        assert not set(service.keys.values()) & set(text.split())
    names = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if line[0] != "#"}
    assert {name.removesuffix(end) for name in names for end in ("_bucket", "_count")} >= {
        "vicinal_requests_total", "vicinal_predict_seconds", "vicinal_block_queries",
        "vicinal_waiting_queries", "vicinal_up",
    }  # fmt: skip


def test_warnings_are_reported_without_lines_of_threads():
    reports = []
    with redirect_warnings(reports.append):
        ThreadPoolExecutor(1).submit(warn_caller, "Two columns\nare left out.").result()
    assert reports == ["Two columns are left out."]


def test_times_of_requests_are_for_monitors_and_in_buckets(tmp_path):
    """Fails if other roles see durations, or monitors their sum, which revealed near queries."""
    with tools.running(tmp_path / "store") as service:
        service.keys["monitor"] = KeyFile(service.folder).add("prom", "monitor", "default")
        service.predict(ROWS[:1])
        assert service.call("GET", "/metrics").status == 403
        for method, path, body in CURATORS + ANALYSTS:
            assert service.call(method, path, body, key="monitor").status == 403, path
        text = service.call("GET", "/metrics", key="monitor").body
        figures = re.findall(r"^vicinal_predict_seconds\S* (.*)$", text, re.MULTILINE)
        assert all(figure in ("0", "1") for figure in figures), "counts, and no sum of seconds"
        assert len(figures) > 10


def test_metrics_say_what_each_audience_has_left(tmp_path):
    with tools.running(tmp_path / "store", n_queries=100) as service:
        service.store.open_audience('ward "3"', n_queries=30, n_neighbors=40, noise_multiplier=1.5)
        service.predict(ROWS[:7])
        text = service.call("GET", "/metrics", key="curator").body
    assert 'vicinal_answers_left{audience="default"} 93' in text
    assert r'vicinal_answers_left{audience="ward \"3\""} 30' in text
    (used,) = re.findall(r'vicinal_budget_used\{audience="default"\} (.*)', text)
    assert 0 < float(used) < 1


def test_metrics_do_not_depend_on_the_data(tmp_path):
    texts = []
    for name, seed in (("one", 1), ("two", 2)):
        with tools.running(tmp_path / name, n_queries=100) as service:
            if seed == 2:
                service.store.add(*points(200, seed), [f"new-{i}" for i in range(200)])
            for row in ROWS[:20]:
                service.predict([row])
            lines = service.call("GET", "/metrics", key="curator").body.splitlines()
            texts.append([line for line in lines if "seconds" not in line])
    assert texts[0] == texts[1]


def test_the_document_describes_every_path(service):
    document = service.call("GET", "/openapi.json", key=None).body
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for method, path, _ in CURATORS + ANALYSTS + MONITORS:
        operation = document["paths"][path.replace("person-9", "{subject}")][method.lower()]
        assert operation["security"] == [{"key": []}]
        assert "default" in operation["responses"]
        if method == "POST":
            example = operation["requestBody"]["content"]["application/json"]["example"]
            key = "curator" if "records" in path else "analyst"
            assert service.call(method, path, example, key).status == 200
    assert not [path for path in document["paths"] if path.startswith("/console")]


def test_many_at_once_share_blocks_and_get_their_own_answers(tmp_path):
    with tools.running(tmp_path / "store", n_queries=400) as service:
        queries = points(96, 11)[0]
        replies: dict[int, dict] = {}

        def ask(i):
            replies[i] = service.predict([queries[i].tolist()], name=f"{i}").body

        tools.at_once(len(queries), ask)
        stored = service.store.predict(queries, analyst="anna")
        assert stored.charged == 0
        for i in range(len(queries)):
            assert replies[i]["votes"][0] == stored.votes[i].tolist()
        ((blocks,),) = service.store._store.database.read("SELECT COUNT(*) FROM answers")
        assert blocks < len(queries)


def test_labels_alone_leave_no_votes(tmp_path):
    with tools.running(tmp_path / "store", release="label") as service:
        reply = service.predict(ROWS[:2]).body
        assert (reply["votes"], reply["confidence"]) == (None, None)
        assert len(reply["labels"]) == 2
        assert service.call("GET", "/v1/status").body["release"] == "label"


@pytest.mark.parametrize(
    "wrong",
    [
        {"body_bytes": 0}, {"body_seconds": float("nan")}, {"wait_ms": -1}, {"rate": float("inf")},
        {"burst": 0.5}, {"response_interval_ms": True}, {"block_queries": 0},
        {"waiting_queries": 1000}, {"connections": 0}, {"head_bytes": 1}, {"idle_seconds": 0},
    ],
)  # fmt: skip
def test_limits_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidInput):
        ServiceSettings(**wrong)


def test_sets_of_a_coverage_need_a_calibration_and_cost_nothing(service):
    rows = ROWS[10:14]
    body = {"vectors": rows, "coverage": 0.9}
    refused = service.call("POST", "/v1/predict", body)
    assert refused.status == 422
    assert "'coverage'" in refused.body["detail"]
    assert "evaluate" in refused.body["detail"]
    answers = service.predict(ROWS).body
    _, truth = points(60, 2)
    visitors = [f"visitor-{i}" for i in range(60)]
    service.store.evaluate(Q, truth, visitors, share=1.0, coverage="overall")
    found = service.call("POST", "/v1/predict", body).body
    assert found["charged"] == 0
    assert found["labels"] == answers["labels"][10:14]
    assert len(found["sets"]) == 4
    assert all(label in row for label, row in zip(found["labels"], found["sets"], strict=True))
    assert "0.9" in found["promise"]
    for level in (0, 1, "0.9", True):
        assert service.call("POST", "/v1/predict", {**body, "coverage": level}).status == 422
