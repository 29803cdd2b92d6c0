"""JSON files of stores and clusters: forged or damaged ones are refused with one clear error."""

import json
import os
import stat

import pytest

import shard_tools
import store_tools as tools
from vicinal.distributed.folders import ClusterDescription, MemberFolder
from vicinal.errors import InvalidInput, StorageFailed, VicinalError
from vicinal.features import TableSchema
from vicinal.ledger.files import replace_file
from vicinal.ledger.sealed_files import parse_json, read_json, read_sealed
from vicinal.serving.keys import KeyFile
from vicinal.store.folder import read_config

DEEP = b'{"a":' * 30_000 + b"1" + b"}" * 30_000
STRANGE = {
    "deep": DEEP, "deep list": b"[" * 1_000_000,
    "deeper than read": b'{"a":' * 40 + b"1" + b"}" * 40,
    "huge": b'{"a": "' + b"a" * (17 << 20) + b'"}', "a list": b"[]",
    "a number of many digits": b'{"format": ' + b"1" * 5000 + b"}",
    "a key twice": b'{"format": 1, "format": 1}', "another encoding": b"\xff\xfe\x00", "empty": b"",
}  # fmt: skip


@pytest.fixture(scope="module")
def sealed_files(tmp_path_factory):
    """Return path and reading function of every sealed file, by name."""
    folder = tmp_path_factory.mktemp("sealed_files")
    cluster = shard_tools.clustered(folder, 1)
    tools.make(folder / "one").close()
    keys = KeyFile(folder / "one")
    keys.add("somebody", "analyst", "default")
    return {
        "store.json": (folder / "one" / "store.json", lambda: read_config(folder / "one")),
        "cluster.json": (cluster / "cluster.json", lambda: ClusterDescription.read(cluster)),
        "shard.json": (
            cluster / "shard-0" / "shard.json", lambda: MemberFolder.read(cluster / "shard-0")
        ),
        "keys.json": (keys.path, keys.load_keys),
    }  # fmt: skip


NAMES = ("store.json", "cluster.json", "shard.json", "keys.json")


@pytest.fixture(params=NAMES)
def sealed_file(request, sealed_files):
    path, read = sealed_files[request.param]
    before = path.read_bytes()
    yield path, read
    path.unlink()
    path.write_bytes(before)


@pytest.mark.parametrize("content", STRANGE.values(), ids=STRANGE)
def test_what_a_stranger_wrote_is_one_clear_error(sealed_file, content):
    path, read = sealed_file
    path.write_bytes(content)
    with pytest.raises((InvalidInput, StorageFailed), match=path.name) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_every_bit_that_flips_is_noticed(sealed_file):
    """Fails if a flipped bit is not detected; of 4,632 bits of keys.json, 1,051 once were not."""
    path, read = sealed_file
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises((InvalidInput, StorageFailed)):
            read()


def test_a_link_is_not_followed(sealed_file, tmp_path):
    path, read = sealed_file
    path.rename(tmp_path / "kept")
    path.symlink_to(tmp_path / "kept")
    with pytest.raises(VicinalError, match=path.name):
        read()


@pytest.mark.parametrize("content", [content for content in STRANGE.values() if content != b"[]"])
@pytest.mark.parametrize("read", [lambda path: read_json(path, "plan"), TableSchema.load])
def test_a_file_of_the_user_is_one_clear_error(tmp_path, read, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path / "file")
    assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.quick
@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 309, "-" + "9" * 5000]
)
def test_numbers_that_json_lacks_are_refused(tmp_path, number):
    """In what a ledger holds, and in each file that a user names."""
    with pytest.raises(StorageFailed, match="not valid JSON: a number is not finite"):
        parse_json(f'{{"a": [{number}]}}')
    (tmp_path / "plan.json").write_text(number)
    for read in (lambda path: read_json(path, "plan"), TableSchema.load):
        with pytest.raises(InvalidInput, match="not valid JSON"):
            read(tmp_path / "plan.json")
    (tmp_path / "sealed").write_text(f'{{"format": 1, "digest": {number}}}')
    with pytest.raises(StorageFailed, match="changed or damaged"):
        read_sealed(tmp_path / "sealed", 1, {}, "")


@pytest.mark.quick
def test_a_replaced_file_is_on_the_disk_before_it_has_its_name_and_the_name_afterwards(
    tmp_path, monkeypatch
):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    flushed = []

    def record(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        content = "folder" if is_folder else os.pread(descriptor, 9, 0)
        flushed.append((content, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", record)
    replace_file(path, b"new")
    assert flushed == [(b"new", b"old"), ("folder", b"new")]


def test_what_a_ledger_holds_is_not_deep():
    with pytest.raises(StorageFailed, match="32 levels"):
        parse_json(DEEP)
    assert parse_json("[" * 32 + "]" * 32) == json.loads("[" * 32 + "]" * 32)
