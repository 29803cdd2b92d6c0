"""API keys: stored as digests, compared in constant time, revoked immediately."""

import json
import stat
from functools import partial

import pytest

from command_line import printed
from store_tools import make
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.serving.keys import KeyCache, KeyFile


@pytest.fixture
def file(tmp_path):
    make(tmp_path / "store").close()
    return KeyFile(tmp_path / "store")


def test_a_key_is_kept_nowhere(file):
    token = file.add("anna", "analyst", "default")
    assert len(token) == 85
    secret = token.rpartition("_")[2]
    for path in file.path.parent.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    (key,) = file.load_keys()
    assert (key.name, key.role, key.audience, key.revoked) == ("anna", "analyst", "default", None)
    assert KeyCache(file).find(token) == key


def test_only_the_whole_key_is_let_in(file):
    token = file.add("anna", "analyst", "default")
    other = file.add("bob", "curator", "default")
    cache = KeyCache(file)
    mixed = token[:21] + other[21:]
    altered = [token[:index] + "x" + token[index + 1 :] for index in range(len(token))]
    for wrong in ("", token[:-1], token + "0", token.upper(), mixed, "é" * 85, *altered):
        assert cache.find(wrong) is None


def test_what_is_revoked_or_added_counts_at_once(file):
    cache = KeyCache(file)
    assert cache.find("x" * 85) is None
    token = file.add("anna", "analyst", "default")
    key = cache.find(token)
    assert key is not None
    file.revoke(key.id)
    file.revoke(key.id)
    assert cache.find(token) is None
    assert file.load_keys()[0].revoked is not None
    with pytest.raises(InvalidInput):
        file.revoke("nothing")


def test_nobody_is_in_two_audiences(file):
    first = file.add("anna", "analyst", "default")
    file.revoke(first[4:20])
    with pytest.raises(PrivacyRefused):
        file.add("anna", "analyst", "others")
    assert file.add("anna", "analyst", "default")
    file.add("Zo\u00eb", "analyst", "default")
    with pytest.raises(PrivacyRefused):
        file.add("Zo\u0065\u0308", "analyst", "others")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}', '{"format": 1, "keys": [1]}'])
def test_a_damaged_file_lets_nobody_in(file, content):
    token = file.add("anna", "analyst", "default")
    cache = KeyCache(file)
    assert cache.find(token)
    file.path.write_text(content)
    for _ in range(2):
        with pytest.raises(StorageFailed):
            cache.find(token)


@pytest.mark.parametrize(
    ("name", "role", "audience"),
    [
        ("", "analyst", "default"),
        ("a", "root", "default"),
        ("a\n", "analyst", "default"),
        ("a", "analyst", ""),
    ],
)
def test_unusable_keys_are_not_made(file, name, role, audience):
    with pytest.raises(InvalidInput):
        file.add(name, role, audience)
    assert file.load_keys() == []


def test_keys_from_the_command_line(file):
    run, store = partial(printed, "keys"), file.path.parent
    token = run("add", store, "anna", "--role", "curator").strip()
    (listed,) = json.loads(run("list", store, "--json"))["keys"]
    assert "digest" not in listed
    assert token not in run("list", store)
    run("revoke", store, listed["id"])
    assert "revoked" in run("list", store)
    run("revoke", store, "nothing", code=2)
    run("add", store / "nowhere", "anna", code=2)
    run("add", store, "anna", "--audience", "others", code=3)
