"""A private model trained on shards: each charges its subjects and sums; one place adds noise.

A gradient is a sum of whole numbers over subjects who are whole on one shard. So sums, charges and,
with the same noise, weights are those of one machine, bit for bit, on any number of shards.

What is durable when, in every step: each shard's charges with the sum that they paid for, under the
step's name, before the sum leaves it; then, at the coordinator, the noisy sum, in the transaction
that moves its clock on. The name holds that clock. So a step that comes again finds its sums, and
nobody is charged twice; and noise is drawn anew only for sums that were never published. Weights
follow from public rows and noisy sums: whoever opens the cluster goes on where it broke off.
"""

import numpy as np

from vicinal.arrays import Floats
from vicinal.distributed import messages as tasks
from vicinal.distributed._sharded_audiences import summed_from
from vicinal.distributed.changes import ClusterChanges
from vicinal.ledger.answers import bytes_of, read_parts, text_of, write_parts
from vicinal.ledger.audiences import Audience
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.linear.private_model import PrivateModel, no_records, train
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.store.audience_state import AudienceState, note_training, settings_of
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import draws_of, stored_features, write_model

_BEGUN = "gradient 0"
"""The part of an audience's model that stands while it is trained; steps follow, from 1."""


def begin(ledger: Ledger, audience: Audience) -> None:
    """Note, inside a transaction, that an audience's model is to be trained by all shards."""
    write_parts(ledger.database, audience.number, {_BEGUN: ""})


def begun(ledger: Ledger) -> Audience | None:
    """Return the audience whose model is being trained, or None; there is one at a time."""
    rows = ledger.database.rows(Tables.MODELS, "part = ?", (_BEGUN,))
    return next(
        (one for one in ledger.audiences.values() if rows and one.number == rows[0][0]), None
    )


class ShardedGradients:
    """The subjects of all shards, for one training of an audience's model."""

    def __init__(self, parts: OpenStore, audience: Audience, changes: ClusterChanges) -> None:
        self._parts, self._audience, self._changes = parts, audience, changes
        self.settings = settings_of(parts, audience)
        self.features, self.public = stored_features(parts, audience)
        noise, self.slack = draws_of(parts, audience, self.settings)
        self.mechanism = self.settings.training.mechanism(
            no_records(self.features.width), self.features.unit, noise, self.slack
        )
        self._published = read_parts(parts.database, audience.number)
        self._step = 0

    def publish(self, release: GradientRelease, weights: Floats) -> Floats:
        """Have every shard charge a gradient, and publish the sum; or return what was published."""
        self._step += 1
        part = f"gradient {self._step}"
        if part in self._published:
            # The draws of a simulation go on from where they were; others are as good as any.
            release.publish(np.zeros(weights.shape, dtype=np.int64))
            return np.frombuffer(bytes_of(self._published[part]), "<f8").reshape(weights.shape)
        ledger, name = self._parts.ledger, self._audience.name
        content = part.encode(), name.encode(), weights.astype("<f8").tobytes()
        step = tasks.block_name(tasks.GRADIENT.encode(), ledger.clock.to_bytes(8), *content)
        request = tasks.GradientRequest(step, ledger.clock, name, release.scale, weights)
        sums = summed_from(self._changes.on_all(request).values(), weights.shape)
        noisy = release.publish(sums)
        with ledger.release(self._audience):
            write_parts(ledger.database, self._audience.number, {part: text_of(noisy)})
        self._parts.mark()  # before shards, asked for the next step, delete this one's sums
        return noisy

    def train(self) -> PrivateModel:
        return train(self.settings.training, self.features, self.public, self)

    def write(self, model: PrivateModel, state: AudienceState | None) -> None:
        """Write the model, and what it cost, inside a change; `state`: if it is a further one."""
        parts, audience = self._parts, self._audience
        parts.database.delete(
            Tables.MODELS, "audience = ? AND part LIKE 'gradient %'", (audience.number,)
        )
        audience.slack = self.slack.spent
        write_model(parts, audience, model)
        if state is not None:
            note_training(parts, state, model.used)
            state.close(parts.shard)
