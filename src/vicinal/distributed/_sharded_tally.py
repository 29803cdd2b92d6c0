"""An evaluation on a cluster: every shard charges its own people, and sends the sum."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vicinal.distributed._cluster_changes import ClusterChanges
from vicinal.distributed._messages import TALLY, Steps, TallyRequest, block_name
from vicinal.errors import StorageFailed
from vicinal.ledger._audiences import Audience
from vicinal.ledger._id_encoding import framed_all
from vicinal.ledger._ledger import Ledger
from vicinal.mechanisms import NoisyTally
from vicinal.predictors.ind_knn._shard import summed
from vicinal.store._evaluation_charges import CountedRows


def tally_on_shards(
    ledger: Ledger,
    changes: ClusterChanges,
    audience: Audience,
    tally: NoisyTally,
    counted: CountedRows,
) -> Steps:
    """Have every shard charge the people it knows, or will know, and return the private sum.

    A tally is named after the coordinator's clock and, by a keyed digest, all that is in it. So one
    that was broken off finds its own sums if the same comes again, and nobody is charged twice.

    - `changes`: the way to all shards.
    - `audience`: whose answers are evaluated.
    - `tally`: adds the noise afterwards.
    - `counted`: rows that were asked before.

    Raises ShardMissing if a shard is missing: there is no evaluation of some of the people.
    """
    people = list(dict.fromkeys(counted.subjects))
    shard_of = dict(zip(people, changes.places_of(people).tolist(), strict=True))
    where = np.array([shard_of[who] for who in counted.subjects], dtype=np.int64)
    plan = counted.plan
    name = _name(ledger, audience, counted)

    def request(shard: int) -> TallyRequest:
        rows = np.flatnonzero(where == shard)
        subjects = [counted.subjects[row] for row in rows.tolist()]
        return TallyRequest(
            name, ledger.clock, audience.name, plan.sizes, plan.share, tally.scale,
            counted.cells[rows], subjects,
        )  # fmt: skip

    counts = changes.on_all([request(number) for number in range(changes.n_shards)])
    return _checked(counts.values(), sum(plan.sizes))


def _name(ledger: Ledger, audience: Audience, counted: CountedRows) -> bytes:
    plan = counted.plan
    content = [repr((plan.sizes, plan.share)).encode(), counted.cells.astype("<i8").tobytes()]
    content += framed_all(counted.subjects)
    private = ledger.keyed_digest(b"".join(len(part).to_bytes(8) + part for part in content))
    return block_name(TALLY.encode(), ledger.clock.to_bytes(8), audience.name.encode(), private)


def _checked(counts: Iterable[Steps], size: int) -> Steps:
    parts = list(counts)
    if any(one.dtype != np.int64 or one.shape != (size,) for one in parts):
        raise StorageFailed("A shard sent something else than sums. Is it of the same version?")
    return summed(parts)
