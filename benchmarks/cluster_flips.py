"""A cluster that was closed, and one that was killed with a change pending: for `flips`."""

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import shard_tools
import store_tools as tools
from vicinal.distributed import Coordinator
from vicinal.distributed.changes import ClusterChanges
from vicinal.distributed.transports import local_transports

SOON = 0.01


def filled(place: Path) -> None:
    """Make `place/closed` and `place/killed`, both to be opened at `place/work`."""
    work = place / "work"
    path = shard_tools.clustered(work, 2, simulation_seed=7)
    shutil.rmtree(work / "store")
    (work / "store.witness").unlink()
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6], idempotency_key="k")
        cluster.erase(["person-3"])
        cluster.open_audience("press", n_queries=5, n_neighbors=10, noise_multiplier=3.0)
        cluster.predict(tools.Q[6:9], idempotency_key="l")
    shutil.copytree(work, place / "closed")
    cluster = shard_tools.local(path)
    with mock.patch.object(ClusterChanges, "finish_pending", return_value={}):
        cluster.add(tools.X[:2], tools.Y[:2], ["new", "person-5"])
    shutil.copytree(work, place / "killed")
    cluster._changes.pending = 0
    cluster.close()


def read_only(path: Path) -> dict[str, Any]:
    """Return what a cluster says and decides."""
    with Coordinator.open(path, local_transports, SOON) as cluster:
        keys = (("k", tools.Q[:6]), ("l", tools.Q[6:9]))
        return {
            "answers": [cluster.predict(q, idempotency_key=k).to_dict() for k, q in keys],
            "facts": cluster.facts(curator=True),
            "guarantees": [str(cluster.guarantee(name)) for name in cluster.audiences],
            "shards": [_shard(one.transport._server._store) for one in cluster._clients],
        }


def _shard(parts: Any) -> tuple[Any, ...]:
    slot_of, size = parts.ledger.slot_table.slot_of, len(parts.shard)
    budgets = [
        {who: int(audience.account.remaining[slot]) for who, slot in slot_of.items()}
        for audience in parts.ledger.audiences.values()
    ]
    departed = parts.database.read("SELECT hash, audience, units FROM departed ORDER BY 1, 2")
    features = np.asarray(parts.record_files.features.map_rows(size)).tobytes()
    return budgets, departed, features, parts.record_files.labels.map_rows(size)[:, 0].tolist()
