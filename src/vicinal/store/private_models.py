"""Private models of a store: each audience has its own, durable together with its charges.

A model maps rows into a learnt metric, from stored integer features and public weights, one row at
a time. So the record files do not depend on the models of audiences.
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
from vicinal.ledger.answers import N_ASKED, read_components, write_components
from vicinal.ledger.audiences import Audience
from vicinal.ledger.sealed_files import parse_json
from vicinal.linear.losses import Predictions
from vicinal.linear.model_features import ModelFeatures
from vicinal.linear.private_model import MODEL_ARRAYS, PrivateModel, metric_kernel
from vicinal.mechanisms.noise_sources import NoiseSource, create_noise_source
from vicinal.mechanisms.votes import DeltaSlackAccountant
from vicinal.neighbours.kernels import Cosine, IntegerMatrix, Kernel
from vicinal.planning.engine_factory import convert_to_float, settled_model, slack_meter
from vicinal.planning.parameter_tables import index_factory
from vicinal.planning.plan import IndKNNPlan
from vicinal.store.opening import OpenStore
from vicinal.store.store_schema import StoreSchema

_USED = "used"
"""Name of the array of used shares among the parts of a model in the ledger."""

_TRAINED = "trained"
"""Name of the number of trainings among the parts of a model in the ledger."""

_SEED_STEP = 1 << 32
"""Added to a simulation's seed for each training, so that every training draws its own noise."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """A private model of an audience, with its metric; all of it is public.

    - `model`: the released weights.
    - `kernel`: cosine kernel in the learnt metric.
    - `public`, (m, d + c): public reference in the learnt metric, not yet integers.
    - `n_asked`: number of queries that were passed on to the private records.
    - `trained`: number of completed trainings.
    """

    model: PrivateModel
    kernel: Kernel
    public: FloatMatrix
    n_asked: int
    trained: int

    def encode_rows(self, rows: IntegerMatrix) -> IntegerMatrix:
        """Return integer features in the learnt metric (n, width), each row computed by itself.

        `rows` (n, d): the store's integer features.
        """
        return self.kernel.encode(self.model.features(convert_to_float(rows)))

    def map_queries(self, rows: IntegerMatrix) -> tuple[IntegerMatrix, Predictions]:
        """Return integer features in the learnt metric, and the predictions that join the votes.

        `rows` (q, d): queries as the store's integer features.
        """
        features, predictions = self.model.mapped(convert_to_float(rows))
        return self.kernel.encode(features), predictions

    def open_shard(self, store: OpenStore, audience: Audience, plan: IndKNNPlan) -> SharedShard:
        """Return the store's records indexed in the learnt metric, with an audience's budgets.

        The index follows all later changes of the store's records.
        """
        index = index_factory(plan.index)(self.kernel, self.public.shape[1])
        mapped = MappedIndex(index, self.encode_rows)
        store.shard.attach_index(mapped, store.record_files.features_in_parts(len(store.shard)))
        return SharedShard(store.shard, audience.account, mapped)


def train_model(
    store: OpenStore, audience: Audience, plan: IndKNNPlan
) -> tuple[IndKNNPlan, Floats]:
    """Train an audience's model, for the first time or again, on the current records.

    Call inside a change of the ledger: charges and the model become durable together, or neither
    does. Returns the plan with the model's share and the number of records fixed, and float64 (m,):
    the share of its budget that this training would have cost each public row.
    """
    kernel = store.schema.kernel_of(None)
    records = store.record_files.features.rows(len(store.shard))
    noise, slack = draws_of(store, audience, plan)
    plan, model = settled_model(
        plan,
        kernel,
        convert_to_float(records),
        _encode_public_rows(store.schema),
        store.shard.subject_table_of(audience.account),
        audience.account,
        noise,
        slack,
    )[:2]
    audience.slack = slack.spent
    write_model(store, audience, model)
    return plan, model.used


def begin_model(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> IndKNNPlan:
    """Write the feature map of a new audience's model, which the shards of a cluster then train.

    Call inside a change of the ledger. Returns the plan with the model's share fixed.
    """
    lifted = _get_encoder(store.schema).lifts
    public_rows = _encode_public_rows(store.schema)
    plan = plan.settled(len(public_rows))
    features = ModelFeatures.planned(public_rows, plan.size, lifted=lifted)
    write_components(store.database, audience.number, _encode_arrays(features.arrays()))
    return plan


def awaits_model(store: OpenStore, audience: Audience) -> bool:
    """Return whether an audience's model is planned but not yet trained by the shards."""
    share = parse_json(audience.plan)["pinned"].get("model_share")
    return bool(share) and _USED not in read_components(store.database, audience.number)


def list_answering_audiences(store: OpenStore) -> list[Audience]:
    """Return the audiences whose models are trained, or that have none."""
    return [
        audience
        for audience in store.ledger.audiences.values()
        if not awaits_model(store, audience)
    ]


def draws_of(
    store: OpenStore, audience: Audience, plan: IndKNNPlan
) -> tuple[NoiseSource, DeltaSlackAccountant]:
    """Return the noise source of an audience's next training, and its accountant of delta slack.

    The noise is seeded in a simulation only.
    """
    number = 1 + int(read_components(store.database, audience.number).get(_TRAINED, 0))
    seed = plan.simulation_seed
    noise = create_noise_source(None if seed is None else seed + number * _SEED_STEP)
    return noise, slack_meter(plan, audience.slack)


def write_model(store: OpenStore, audience: Audience, model: PrivateModel) -> None:
    """Write a newly trained model of an audience into the ledger, inside a change.

    The used shares of all its trainings are added up, at most to 1.
    """
    old_parts = read_components(store.database, audience.number)
    arrays = model.arrays()
    if _USED in old_parts:
        arrays[_USED] = np.minimum(_decode_arrays(old_parts)[_USED] + model.used, 1.0)
    n_trainings = 1 + int(old_parts.get(_TRAINED, 0))
    counts = {N_ASKED: old_parts.get(N_ASKED, "0"), _TRAINED: f"{n_trainings}"}
    write_components(store.database, audience.number, {**counts, **_encode_arrays(arrays)})


def settle_request(
    requested: IndKNNPlan, pinned: Mapping[str, Any], schema: StoreSchema
) -> IndKNNPlan:
    """Return a requested plan with its model's share as decided, or with the obstacle to a model.

    `pinned`: values that are fixed already, by parameter.
    """
    share = float(pinned.get("model_share", 0))
    if share or requested.model_share is not None:
        return requested.changed(model_share=share)
    n_public = 0 if schema.public is None else len(schema.public)
    return requested.without_model(requested.model_obstacle(n_public))


def load_model(store: OpenStore, audience: Audience, plan: IndKNNPlan) -> StoredModel | None:
    """Return the trained model of an audience from the ledger; None if its plan has none.

    The plan's share of the model must be fixed. Raises StorageFailed if the model is missing or
    damaged.
    """
    if not plan.model_share:
        return None
    stored = read_components(store.database, audience.number)
    if store.schema.public is None or not {_USED, _TRAINED, N_ASKED} <= stored.keys():
        raise StoreDamaged("The ledger lacks a private model. Restore a backup.")
    try:
        public_rows = _encode_public_rows(store.schema)
        lifted = _get_encoder(store.schema).lifts
        arrays = _decode_arrays(stored)
        model = PrivateModel.kept(arrays, public_rows, plan.loss, lifted=lifted)
        n_trainings = int(stored[_TRAINED])
        n_asked = int(stored[N_ASKED])
        if n_trainings < 1 or n_asked < 0:
            raise ValueError
    except ValueError:  # includes InvalidInput, a subclass
        raise StoreDamaged("The ledger has a damaged private model. Restore a backup.") from None
    public = model.features(public_rows)
    return StoredModel(model, metric_kernel(public), public, n_asked, n_trainings)


def stored_features(store: OpenStore, audience: Audience) -> tuple[ModelFeatures, FloatMatrix]:
    """Return the feature map of an audience's model, and the public rows (m, d) as integers.

    The integers are floating-point numbers here, as training needs them.
    """
    public_rows = _encode_public_rows(store.schema)
    stored = read_components(store.database, audience.number)
    lifted = _get_encoder(store.schema).lifts
    features = ModelFeatures.kept(public_rows, _decode_arrays(stored), lifted=lifted)
    return features, public_rows


def _encode_public_rows(schema: StoreSchema) -> FloatMatrix:
    """Return the public reference (m, d) as the store's integers, in floating point."""
    assert schema.public is not None  # noqa: S101 (a model needs it)
    return convert_to_float(_get_encoder(schema).encode(schema.public))


def _get_encoder(schema: StoreSchema) -> Cosine:
    """Return the kernel that makes the store's integers; a model needs the cosine kernel."""
    encoder = schema.kernel_of(None)
    assert isinstance(encoder, Cosine)  # noqa: S101 (a model needs it)
    return encoder


def _encode_arrays(arrays: Mapping[str, AnyArray]) -> dict[str, str]:
    """Return arrays as the ledger stores them: NumPy files, with type and shape, in base 64."""
    texts = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        texts[name] = base64.b64encode(file.getvalue()).decode()
    return texts


def _decode_arrays(stored: Mapping[str, str]) -> dict[str, AnyArray]:
    """Return the arrays among the stored parts of a model; raises ValueError if one is damaged."""
    files = {
        name: io.BytesIO(base64.b64decode(stored[name])) for name in MODEL_ARRAYS & stored.keys()
    }
    return {
        name: np.lib.format.read_array(file, allow_pickle=False) for name, file in files.items()
    }
