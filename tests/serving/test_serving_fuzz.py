"""Random bodies: no internal error, no access without a key, no input repeated in a response."""

import asyncio
import json
import logging
import random

import pytest

import serving_tools as tools
import store_tools
from vicinal.serving.app import create_app
from vicinal.serving.keys import KeyFile

CANARY = "canary9f3b"
PATHS = [
    ("POST", "/v1/predict"), ("POST", "/v1/predict"), ("POST", "/v1/predict"),
    ("POST", "/v1/records"), ("GET", "/v1/guarantee"), ("GET", "/v1/quota"), ("GET", "/v1/history"),
    ("GET", "/v1/status"), ("PUT", "/v1/predict"), ("GET", f"/v1/{CANARY}"),
    ("DELETE", f"/v1/subjects/{CANARY}"), ("DELETE", f"/v1/subjects/1?outcome={CANARY}"),
    ("POST", f"/v1/predict?audience={CANARY}"),
]  # fmt: skip
LEAVES = [
    CANARY, f"{CANARY}\x00", "", "\ud800", 0, -1, 1.5, 1e308, -1e308, 1e31, 2**63, -(2**63),
    10**400,
    True,
    False, None, float("nan"), float("inf"), [], {}, [[]], [[[]]], [None], {CANARY: CANARY},
]  # fmt: skip
NAMES = ["vectors", "images", "texts", "labels", "subjects", "audience", CANARY, ""]
GOOD = {"vectors": [[0.1, 2.9, 0.2, 0.0]], "labels": [1], "subjects": ["person-7"]}


def make_value(draw, depth=0):
    """Return a random value that Python's JSON encoder can write."""
    if depth > 3 or draw.random() < 0.4:
        return draw.choice(LEAVES)
    if draw.random() < 0.5:
        return [make_value(draw, depth + 1) for _ in range(draw.randrange(5))]
    return {draw.choice(NAMES): make_value(draw, depth + 1) for _ in range(draw.randrange(4))}


def corrupt_value(draw, value):
    """Return a valid value with one element changed."""
    if draw.random() < 0.3 or not isinstance(value, list | dict) or not value:
        return make_value(draw)
    copy = value.copy()
    key = draw.choice(list(copy)) if isinstance(copy, dict) else draw.randrange(len(copy))
    copy[key] = corrupt_value(draw, copy[key])
    return copy


def make_body(draw):
    """Return the bytes of a random body."""
    kind = draw.random()
    if kind < 0.1:
        return draw.randbytes(draw.randrange(200)) + CANARY.encode()
    value = (
        make_value(draw)
        if kind < 0.3
        else corrupt_value(draw, dict(draw.sample(list(GOOD.items()), 2)))
    )
    if kind > 0.9:
        value = {**GOOD, draw.choice(NAMES): make_value(draw)}
    content = json.dumps(value).encode()
    return content[: draw.randrange(len(content) + 1)] if draw.random() < 0.1 else content


def make_headers(draw, keys):
    """Return random headers and the role of their key (None without one, or "wrong")."""
    role = draw.choice([None, "wrong", "analyst", "analyst", "curator", "curator"])
    token = f"vic_{'0' * 16}_{CANARY}".ljust(85, "0") if role == "wrong" else keys.get(role)
    headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
    media = draw.choice([b"application/json"] * 8 + [b"text/plain", CANARY.encode()])
    headers.append((b"content-type", media))
    if draw.random() < 0.3:
        key = [b"a", CANARY.encode(), b"\xff\xfe", b"", b"x" * 300, b"\x00"]
        headers.append((b"idempotency-key", draw.choice(key)))
    if draw.random() < 0.05:
        headers.append((b"content-length", draw.choice([b"-1", CANARY.encode(), b"9" * 5000])))
    return headers, role


async def send_random_requests(app, keys, count, seed):
    """Send random requests and return the statuses; AssertionError for an inadmissible response."""
    draw = random.Random(seed)  # noqa: S311 (reproducible bodies, no secrets)
    statuses = set()
    async with tools.Direct(app) as direct:
        for _ in range(count):
            method, path = draw.choice(PATHS)
            content, (sent, role) = make_body(draw), make_headers(draw, keys)
            status, text = await direct.call(method, path, content, sent)
            case = (method, path, content, sent, status, text)
            assert status < 500, case
            assert CANARY not in text, case
            if role in (None, "wrong"):
                assert status >= 400, case
            if role == "analyst" and path.startswith(
                ("/v1/records", "/v1/history", "/v1/subjects")
            ):
                assert status >= 400, case
            statuses.add(status)
        curator = [(b"authorization", b"Bearer " + keys["curator"].encode())]
        metrics = await direct.call("GET", "/metrics", b"", curator)
        assert metrics[0] == 200
        assert CANARY not in metrics[1]
    return statuses


@pytest.mark.parametrize(
    "count", [2000, pytest.param(100_000, marks=pytest.mark.soak)], ids=["some", "many"]
)
def test_no_body_does_harm(tmp_path, caplog, count):
    caplog.set_level(logging.DEBUG)
    with store_tools.make(tmp_path / "store", n_queries=100_000) as store:
        file = KeyFile(tmp_path / "store")
        keys = {role: file.add(role, role, "default") for role in ("analyst", "curator")}
        app = create_app(store, tmp_path / "store", tools.FAST)
        statuses = set()
        for seed in range(0, count, 2000):
            statuses |= asyncio.run(send_random_requests(app, keys, 2000, seed))
            assert CANARY not in caplog.text
            caplog.clear()
            app = create_app(store, tmp_path / "store", tools.FAST)
        assert statuses >= {200, 400, 401, 403, 404, 405, 413, 415, 422}
        assert store.verify()
