"""Flipped bits in any file of a store or its witness are detected, never used for answers."""

import os
import shutil
import stat

import pytest

from benchmarks import flips
from store_tools import Q, contents, copied, make
from vicinal.errors import PrivacyRefused, StorageFailed
from vicinal.store import Store

FLIPS = 150


def test_no_bit_that_flips_is_silent_or_ends_in_a_traceback(tmp_path):
    said: list[str] = []
    counts = flips.flips(tmp_path, FLIPS, ["store"], report=said.append)
    assert not said
    assert sum(counts.values()) == FLIPS
    assert sum(n for (_, found), n in counts.items() if found == "noticed") > FLIPS / 2


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A store as a kill leaves it, with a log."""
    place = tmp_path_factory.mktemp("killed")
    with make(place / "alive" / "store") as store:
        store.predict(Q[:3])
        shutil.copytree(place / "alive", place / "killed")
    return place / "killed"


REFUSALS = {
    "old copy": lambda here: (here / "store" / "ledger.db-wal").unlink(),
    "no witness": lambda here: (here / "store.witness").unlink(),
    "damaged witness": lambda here: overwrite(here / "store.witness", 60),
    "damaged features": lambda here: overwrite(here / "store" / "records" / "features", 40),
    "damaged labels": lambda here: overwrite(here / "store" / "records" / "labels", -1),
    "damaged slots": lambda here: overwrite(here / "store" / "records" / "slots", -1),
    "short features": lambda here: cut(here / "store" / "records" / "features"),
    "short labels": lambda here: cut(here / "store" / "records" / "labels"),
    "short slots": lambda here: cut(here / "store" / "records" / "slots"),
    "damaged key": lambda here: overwrite(here / "store" / "key", 3),
    "no labels": lambda here: (here / "store" / "records" / "labels").unlink(),
    "public rows": lambda here: overwrite(here / "store" / "public.npy", 400),
    "broken log": lambda here: overwrite(here / "store" / "ledger.db-wal", 5000),
}


def overwrite(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(bytes(content))


def cut(path):
    path.write_bytes(path.read_bytes()[:-4])


@pytest.mark.parametrize("index", ["with index", "without"])
@pytest.mark.parametrize("damage", REFUSALS.values(), ids=REFUSALS)
def test_an_opening_that_is_refused_writes_and_deletes_nothing(killed, tmp_path, damage, index):
    here = tmp_path / "here"
    shutil.copytree(killed, here)
    if index == "without":
        (here / "store" / "ledger.db-shm").unlink(missing_ok=True)
    damage(here)
    before = contents(here)
    with pytest.raises((StorageFailed, PrivacyRefused)):
        Store.open(here / "store")
    assert contents(here) == before


@pytest.mark.parametrize("lost", ["no witness", "damaged witness"])
def test_a_loss_can_be_accepted_wherever_a_witness_can_be_lost(killed, tmp_path, lost):
    here = tmp_path / "here"
    shutil.copytree(killed, here)
    REFUSALS[lost](here)
    with pytest.raises((StorageFailed, PrivacyRefused), match="accept the loss"):
        Store.open(here / "store")
    with Store.open(here / "store", accept_loss=True) as store:
        assert not store._store.ledger.audiences["default"].account.remaining.any()
    with Store.open(here / "store") as store:
        assert store.verify()


def test_a_damaged_database_is_noticed(new_store, tmp_path):
    path = copied(new_store, tmp_path)
    overwrite(path / "ledger.db", 3)
    with pytest.raises(StorageFailed):
        Store.open(path)


def test_files_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        with make(tmp_path / "store") as store:
            store.predict(Q[:1])
            store.backup(tmp_path / "backup")
            for path in (tmp_path / "store", tmp_path / "store.witness", *tmp_path.glob("*/**/*")):
                assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path.name
    finally:
        os.umask(before)
