"""Private models of a store: each audience has its own, durable together with its charges.

A model maps each row of stored integer features to a model feature space, by public weights; its
neighbours are searched there. So the record files do not depend on the models of audiences.

Everywhere in this module `plan` is that of the `audience`, and `rows` (n, d) are integer features
as the store has them. The *parts* of a model are its arrays and counts as the ledger stores them,
texts by name. Functions that train or write a model are called within a ledger transaction, so that
the model becomes durable together with its charges.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, FloatMatrix, Floats
from vicinal.engine.shard import MappedIndex, SharedShard
from vicinal.errors import StoreDamaged
from vicinal.ledger.answers import N_PRIVATE_QUERIES, read_components, write_components
from vicinal.ledger.audiences import Audience
from vicinal.ledger.sealed_files import parse_json
from vicinal.linear.losses import Predictions
from vicinal.linear.model_features import ModelFeatures
from vicinal.linear.private_model import MODEL_ARRAYS, PrivateModel, build_metric_kernel
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import Cosine, IntegerMatrix, Kernel
from vicinal.planning.engine_factory import (
    convert_to_float32,
    create_slack_accountant,
    train_and_charge_model,
)
from vicinal.planning.parameter_tables import create_index_factory
from vicinal.planning.plan import IndKNNPlan
from vicinal.store.opening import OpenStore
from vicinal.store.store_schema import StoreSchema

_USED = "used"
"""Stored name, in the ledger, of a model's array of the budget shares spent by its trainings."""

_TRAINED = "trained"  # stored name, in the ledger, of the number of completed trainings of a model

_SEED_STEP = 1 << 32
"""Added to a simulation's seed for each training, so that every training draws its own noise."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A trained private model of an audience and its feature space; all of it is public.

    - `model`: the released weights.
    - `kernel`: cosine kernel of the model's feature space.
    - `public`, (m, width): public reference in the model's feature space, not rounded to integers.
    - `n_private_queries`: number of queries that were answered with private records, in addition
      to the model.
    - `n_completed_trainings`: the first training and all refreshes so far.
    """

    model: PrivateModel
    kernel: Kernel
    public: FloatMatrix
    n_private_queries: int
    n_completed_trainings: int

    def map_records(self, rows: IntegerMatrix) -> IntegerMatrix:
        """Return `rows` in the model's feature space, as integers (n, width), each by itself."""
        return self.kernel.encode(self.model.compute_metric_rows(convert_to_float32(rows)))

    def map_queries(self, rows: IntegerMatrix) -> tuple[IntegerMatrix, Predictions]:
        """Return queries `rows` in the model's feature space, and the model's predictions for them.

        The mapped queries are integers (q, width).
        """
        features, predictions = self.model.map_rows(convert_to_float32(rows))
        return self.kernel.encode(features), predictions

    def open_shard(self, store: OpenStore, audience: Audience, plan: IndKNNPlan) -> SharedShard:
        """Return the store's records with an index in the model's feature space.

        Charges reduce the budgets of `audience`. The index follows all later changes of the
        records.
        """
        index = create_index_factory(plan.index)(self.kernel, self.public.shape[1])
        mapped = MappedIndex(index, self.map_records)
        store.shard.attach_index(mapped, store.record_files.read_feature_chunks(len(store.shard)))
        return SharedShard(store.shard, audience.account, mapped)


def train_model(
    store: OpenStore, audience: Audience, plan: IndKNNPlan
) -> tuple[IndKNNPlan, Floats]:
    """Train an audience's model, for the first time or again, on the current records.

    Returns `plan` with the model's share of budgets and the number of records filled in; and,
    float64 (m,), the share of its budget that this training would have cost each public row.
    """
    kernel = store.schema.create_kernel()
    records = store.record_files.features.map_rows(len(store.shard))
    noise, slack = create_training_noise(store, audience, plan)
    plan, model = train_and_charge_model(
        plan,
        kernel,
        convert_to_float32(records),
        _encode_public_rows(store.schema)[0],
        store.shard.subject_table_of(audience.account),
        audience.account,
        noise,
        slack,
    )[:2]
    audience.slack = slack.spent
    write_model(store, audience, model)
    return plan, model.spent_shares


def begin_model_training(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> IndKNNPlan:
    """Write the feature map of a new audience's model, which the shards of a cluster train later.

    Returns `plan` with the model's share of budgets filled in.
    """
    public_rows, lifted = _encode_public_rows(store.schema)
    plan = plan.choose_model_share(len(public_rows))
    features = ModelFeatures.for_training(public_rows, plan.size, lifted=lifted)
    write_components(store.database, audience.number, _encode_arrays(features.to_arrays()))
    return plan


def is_training_pending(store: OpenStore, audience: Audience) -> bool:
    """Return whether an audience's model is planned but not yet trained by the shards."""
    share = parse_json(audience.plan)["pinned"].get("model_share")
    return bool(share) and _USED not in read_components(store.database, audience.number)


def list_answering_audiences(store: OpenStore) -> list[Audience]:
    """Return the audiences that can answer: their models are trained, or they have no model."""
    return [
        audience
        for audience in store.ledger.audiences.values()
        if not is_training_pending(store, audience)
    ]


def create_training_noise(
    store: OpenStore, audience: Audience, plan: IndKNNPlan
) -> tuple[NoiseSource, DeltaSlackAccountant]:
    """Return the noise source of an audience's next training, and its accountant of delta slack.

    The noise is seeded only if `plan` is that of a simulation.
    """
    number = 1 + int(read_components(store.database, audience.number).get(_TRAINED, 0))
    seed = plan.simulation_seed
    noise = create_noise_source(None if seed is None else seed + number * _SEED_STEP)
    return noise, create_slack_accountant(plan, audience.slack)


def write_model(store: OpenStore, audience: Audience, model: PrivateModel) -> None:
    """Write a newly trained `model` of an audience into the ledger.

    The budget shares spent by all its trainings are added up, at most to 1.
    """
    old_parts = read_components(store.database, audience.number)
    arrays = model.to_arrays()
    if _USED in old_parts:
        arrays[_USED] = np.minimum(_decode_arrays(old_parts)[_USED] + model.spent_shares, 1.0)
    n_completed = 1 + int(old_parts.get(_TRAINED, 0))
    counts = {N_PRIVATE_QUERIES: old_parts.get(N_PRIVATE_QUERIES, "0"), _TRAINED: f"{n_completed}"}
    write_components(store.database, audience.number, {**counts, **_encode_arrays(arrays)})


def resolve_model_share(
    requested: IndKNNPlan, pinned: Mapping[str, Any], schema: StoreSchema
) -> IndKNNPlan:
    """Return the plan `requested` with the decided share of budgets for a private model.

    Without a decision and a requested share, the plan has no model, and states the reason.
    `pinned`: the automatic values that were decided when the audience was opened, by parameter.
    """
    share = float(pinned.get("model_share", 0))
    if share or requested.model_share is not None:
        return requested.changed(model_share=share)
    n_public = 0 if schema.public is None else len(schema.public)
    return requested.without_model(requested.find_model_obstacle(n_public))


def load_model(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> StoredModel | None:
    """Return the trained model of an audience from the ledger; None if its plan has none.

    The plan's share of budgets for the model must be decided. Raises StoreDamaged if the model is
    missing or damaged.
    """
    if not plan.model_share:
        return None
    stored = read_components(store.database, audience.number)
    if store.schema.public is None or not {_USED, _TRAINED, N_PRIVATE_QUERIES} <= stored.keys():
        raise StoreDamaged("The ledger lacks a private model. Restore a backup.")
    try:
        public_rows, lifted = _encode_public_rows(store.schema)
        arrays = _decode_arrays(stored)
        model = PrivateModel.from_arrays(arrays, public_rows, plan.loss, lifted=lifted)
        n_completed = int(stored[_TRAINED])
        n_private_queries = int(stored[N_PRIVATE_QUERIES])
        if n_completed < 1 or n_private_queries < 0:
            raise ValueError
    except ValueError:  # includes InvalidInput, a subclass
        raise StoreDamaged("The ledger has a damaged private model. Restore a backup.") from None
    public = model.compute_metric_rows(public_rows)
    return StoredModel(model, build_metric_kernel(public), public, n_private_queries, n_completed)


def load_feature_map(store: OpenStore, audience: Audience) -> tuple[ModelFeatures, FloatMatrix]:
    """Return the feature map of an audience's model, and the public reference, for training.

    The latter, (m, width), are the store's integer features in floating point.
    """
    public_rows, lifted = _encode_public_rows(store.schema)
    stored = read_components(store.database, audience.number)
    features = ModelFeatures.from_arrays(public_rows, _decode_arrays(stored), lifted=lifted)
    return features, public_rows


def _encode_public_rows(schema: StoreSchema) -> tuple[FloatMatrix, bool]:
    """Return the public reference as the store's integers, and whether it is lifted.

    The integers, (m, width), are in floating point. They are lifted if the store's kernel adds a
    column that makes all rows equally long.
    """
    encoder = schema.create_kernel()
    assert schema.public is not None  # noqa: S101 (a model needs it)
    assert isinstance(encoder, Cosine)  # noqa: S101 (a model needs it)
    return convert_to_float32(encoder.encode(schema.public)), encoder.lifts


def _encode_arrays(arrays: Mapping[str, AnyArray]) -> dict[str, str]:
    """Return the parts of arrays, by name: contents of NumPy files in base 64."""
    texts = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        texts[name] = base64.b64encode(file.getvalue()).decode()
    return texts


def _decode_arrays(stored: Mapping[str, str]) -> dict[str, AnyArray]:
    """Return a model's arrays by name from its parts `stored`.

    Raises ValueError if an array is damaged.
    """
    arrays = {}
    for name in MODEL_ARRAYS & stored.keys():
        file = io.BytesIO(base64.b64decode(stored[name]))
        arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return arrays
