"""Bits that flip: each is told, or changes nothing that anybody reads.

A small store with all that decides something is damaged in one bit at a time, opened, and compared
with what it said before: budgets, answers, ids, plans, quotas, records, who left with how much.
"""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from store_tools import CLASSES, PEOPLE, PLAN, Q, R, X, Y
from vicinal.errors import VicinalError
from vicinal.store import Store

Reading = dict[str, Any]
KEYS = 3
SIZE = 60


def filled(place: Path) -> None:
    """Make `place/closed` and `place/killed`: the same store after closing, and after a kill."""
    settings = {"classes": range(CLASSES), "public": R, "n_records": SIZE, **PLAN}
    settings |= {"n_neighbors": 10, "index": {"kind": "centroids", "cells": 4, "recall": 0.9}}
    store = Store.init(place / "closed" / "store", X[:SIZE], Y[:SIZE], PEOPLE[:SIZE], **settings)
    with store:
        for key in range(KEYS):
            store.predict(Q[2 * key : 2 * key + 2], idempotency_key=str(key))
        store.allow("bob", 3)
        store.erase(["person-3"])
        store.predict(Q[10:12], analyst="bob")
        store.open_audience("press", release="label", n_queries=5, n_neighbors=10, n_records=SIZE)
        store.add(X[SIZE : SIZE + 2], Y[SIZE : SIZE + 2], ["new", "new"], idempotency_key="a")
        store.predict(Q[12:14])
        shutil.copytree(place / "closed", place / "killed")


def reading(path: Path) -> Reading:
    """Return what a store says and decides."""
    with Store.open(path) as store:
        book = store._parts.ledger
        records = store._parts.record_files
        size = len(store._parts.shard)
        rows = "SELECT hash, audience, units FROM departed ORDER BY hash, audience"
        return {
            "facts": store.facts(curator=True),
            "guarantees": [str(store.guarantee(name)) for name in store.audiences],
            "budgets": {
                name: {
                    who: int(a.account.remaining[slot])
                    for who, slot in book.slot_table.slot_of.items()
                }
                for name, a in book.audiences.items()
            },
            "welcome": [audience.initial_budget for audience in book.audiences.values()],
            "departed": book.database.read(rows),
            "hash": book.hash("person-3"),
            "features": np.asarray(records.features.rows(size)).tobytes(),
            "labels": records.column("labels", size).tolist(),
            "slots": records.column("slots", size).tolist(),
            "erased": store._parts.witness.state.erased_since(-1),
            "answers": [_answer(store, str(key)) for key in range(KEYS)],
            "replay": store.predict(Q[12:14]).to_dict(),
        }


def _answer(store: Store, key: str) -> Any:
    at = 2 * int(key)
    return store.predict(Q[at : at + 2], idempotency_key=key).to_dict()


def files_of(place: Path) -> list[Path]:
    """Return all files of a store and its witness that hold anything, relative to `place`."""
    found = (path for path in sorted(place.rglob("*")) if path.is_file() and any(path.read_bytes()))
    return [path.relative_to(place) for path in found]


def flip(path: Path, rng: np.random.Generator) -> None:
    """Flip one bit of a byte of a file that is not zero: most of a small database is empty."""
    content = bytearray(path.read_bytes())
    used = np.flatnonzero(np.frombuffer(content, dtype=np.uint8))
    content[int(rng.choice(used))] ^= 1 << int(rng.integers(8))
    path.write_bytes(bytes(content))


def outcome(path: Path, truth: Reading, reading: Callable[[Path], Reading] = reading) -> str:
    """Open what is damaged; return "told", "no change", "SILENT" or "TRACEBACK", and why."""
    try:
        found = reading(path)
    except VicinalError as error:
        return "told" if str(error) and "\n" not in str(error) else "TRACEBACK: several lines"
    except Exception as error:  # noqa: BLE001 (that there is none is what is measured)
        return f"TRACEBACK: {type(error).__name__}"
    changed = [name for name in truth if found[name] != truth[name]]
    return f"SILENT: {', '.join(changed)}" if changed else "no change"


def flips(place: Path, count: int, seed: int = 0, report: Callable[[str], None] = print) -> Counter:
    """Flip `count` bits, each in a fresh copy, and count outcomes by file.

    Returns
    -------
    Counter
        Of (file, outcome without its reason).
    """
    rng = np.random.default_rng(seed)
    filled(place)
    truths = {state: reading(_copied(place / state, place / "truth")) for state in _STATES}
    counts: Counter = Counter()
    for number in range(count):
        state = _STATES[number % len(_STATES)]
        here = _copied(place / state, place / "flipped")
        files = files_of(here.parent)
        name = files[int(rng.integers(len(files)))]
        flip(here.parent / name, rng)
        found = outcome(here, truths[state])
        counts[str(name), found.split(":")[0]] += 1
        if found.isupper() or ":" in found:
            report(f"flip {number}: {state} {name}: {found}")
    return counts


_STATES = ("closed", "killed")


def _copied(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target / "store"
