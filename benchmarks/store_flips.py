"""A small store with all that decides something, and all that it says and decides: for `flips`."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from store_tools import CLASSES, PEOPLE, PLAN, Q, R, X, Y
from vicinal.store import Store

Reading = dict[str, Any]
KEYS = 3
SIZE = 60


def filled(place: Path) -> None:
    """Make `place/closed` and `place/killed`: the same store after closing, and after a kill."""
    settings = {"classes": range(CLASSES), "public": R, "n_records": SIZE, **PLAN}
    settings |= {"n_neighbors": 10, "index": {"kind": "lsh", "tables": 4, "bits": 3}}
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


def read_only(path: Path) -> Reading:
    """Return what a store says and decides."""
    with Store.open(path) as store:
        book = store._store.ledger
        records = store._store.record_files
        size = len(store._store.shard)
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
            "hash": book.hash_id("person-3"),
            "features": np.asarray(records.features.map_rows(size)).tobytes(),
            "labels": records.labels.map_rows(size)[:, 0].tolist(),
            "slots": records.read_slots(size).tolist(),
            "erased": store._store.witness.state.erased,
            "answers": [_answer(store, str(key)) for key in range(KEYS)],
            "replay": store.predict(Q[12:14]).to_dict(),
        }


def _answer(store: Store, key: str) -> Any:
    at = 2 * int(key)
    return store.predict(Q[at : at + 2], idempotency_key=key).to_dict()
