"""Training of a private model on shards, which charge their subjects; the coordinator adds noise.

A gradient is a sum of integers over subjects, and all records of a subject are on one shard. Sums,
charges and, with the same noise, weights therefore equal those of one machine bit for bit, for any
number of shards.

In every step, a shard first makes its charges and the sum that they paid for durable, under the
name of the step, before it returns the sum. Then the coordinator makes the noisy sum durable, in
the transaction that advances its clock. The name contains that clock. A repeated step therefore
finds its sums without a second charge, and noise is sampled anew only for sums that were never
published. Weights depend on public rows and noisy sums only, so an interrupted training is resumed
at the next opening of the cluster.

Weights and gradients are float64 (D, c), for the D features and the c scores of the model.
"""

import numpy as np

from vicinal.arrays import Floats
from vicinal.distributed import messages as tasks
from vicinal.distributed._sharded_audiences import sum_shard_answers
from vicinal.distributed.changes import ClusterChanges
from vicinal.ledger.answers import decode_bytes, encode_array, read_components, write_components
from vicinal.ledger.audiences import Audience
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.tables import Tables
from vicinal.linear.private_model import PrivateModel, build_empty_records, train_private_model
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.store.audience_state import AudienceState, charge_proxies, restore_plan
from vicinal.store.opening import OpenStore
from vicinal.store.private_models import create_training_noise, load_feature_map, write_model

_TRAINING_MARK = "gradient 0"
"""Name of the stored entry that marks an audience's model as being trained.

The noisy sums follow under "gradient 1", "gradient 2" and so on.
"""


def begin_training(ledger: Ledger, audience: Audience) -> None:
    """Mark an audience's model as in training, in a transaction of the coordinator's `ledger`."""
    write_components(ledger.database, audience.number, {_TRAINING_MARK: ""})


def find_training_audience(ledger: Ledger) -> Audience | None:
    """Return the audience in the coordinator's `ledger` with a model in training; None if none."""
    rows = ledger.database.read_rows(Tables.MODELS, "part = ?", (_TRAINING_MARK,))
    if not rows:
        return None
    number = rows[0][0]
    matches = (audience for audience in ledger.audiences.values() if audience.number == number)
    return next(matches, None)


class ShardedGradients:
    """Noisy gradients over the subjects of all shards, for one training of an audience's model.

    Implements :class:`~vicinal.linear.private_model.Gradients`. `store`: the coordinator's.
    `audience`: whose budgets are charged. `changes`: sends the requests to all shards.
    """

    def __init__(self, store: OpenStore, audience: Audience, changes: ClusterChanges) -> None:
        self._store = store
        self._audience = audience
        self._changes = changes
        self.plan = restore_plan(store, audience)
        self.features, self.public = load_feature_map(store, audience)
        noise, self.slack = create_training_noise(store, audience, self.plan)
        self.mechanism = self.plan.training.build_mechanism(
            build_empty_records(self.features.width),
            self.features.steps_per_unit,
            noise,
            self.slack,
        )
        self._published = read_components(store.database, audience.number)
        self._step = 0

    def charge_and_publish(self, release: GradientRelease, weights: Floats) -> Floats:
        """Charge the subjects of all shards for the next step; return its noisy gradient, (D, c).

        The gradient is a sum over subjects, in units of the clipping norm. One that was published
        before an interruption is returned again without a charge. `release`: noise scale and charge
        rate of this step; adds the noise. `weights`, (D, c): the current weights; public.
        """
        self._step += 1
        entry = f"gradient {self._step}"
        if entry in self._published:
            # Seeded noise of a simulation must continue with the draws after this step's, so they
            # are made and discarded. For any other source of noise this changes nothing.
            release.publish(np.zeros(weights.shape, dtype=np.int64))
            return np.frombuffer(decode_bytes(self._published[entry]), "<f8").reshape(weights.shape)
        ledger, name = self._store.ledger, self._audience.name
        content = entry.encode(), name.encode(), weights.astype("<f8").tobytes()
        step_name = tasks.create_request_name(
            tasks.GRADIENT.encode(), ledger.clock.to_bytes(8), *content
        )
        request = tasks.GradientRequest(step_name, ledger.clock, name, release.scale, weights)
        sums = sum_shard_answers(self._changes.run_on_shards(request).values(), weights.shape)
        noisy = release.publish(sums)
        with ledger.release(self._audience):
            write_components(ledger.database, self._audience.number, {entry: encode_array(noisy)})
        self._store.report_commit()  # The next request has shards delete the sums of this step.
        return noisy

    def train(self) -> PrivateModel:
        """Return the model after all steps; public."""
        return train_private_model(self.plan.training, self.features, self.public, self)

    def write(self, model: PrivateModel, state: AudienceState | None) -> None:
        """Store the trained model and the delta slack of its training, inside a ledger change.

        The stored gradients of the training are deleted. `state`: the audience's engine and
        counters, whose public points are charged, if the model replaces an earlier one; else None.
        """
        store = self._store
        audience = self._audience
        store.database.delete(
            Tables.MODELS, "audience = ? AND part LIKE 'gradient %'", (audience.number,)
        )
        audience.slack = self.slack.spent
        write_model(store, audience, model)
        if state is not None:
            charge_proxies(store, state, model.spent_shares)
