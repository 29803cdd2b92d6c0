"""Private models of a store: each audience's own, trained once, durable with its charges.

The metric of a model is computed from stored integer features and public weights, record by record.
So the record files stay what they are, whichever audiences there are.
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
from vicinal.ledger.answers import PUT, read_parts, write_parts
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

_USED, _TRAINED = "used", "trained"
_OTHER_DRAWS = 1 << 32
"""Added to a simulation's seed for every training, so that all draw different noise."""


@dataclass(frozen=True, eq=False)
class StoredModel:
    """An audience's private model, and what it makes of stored integers; all of it public.

    `public`, (m, d + c), is the reference in the metric of `kernel`; `n_asked` queries went to the
    private records; it was `trained` so often.
    """

    model: PrivateModel
    kernel: Kernel
    public: FloatMatrix
    n_asked: int
    trained: int

    def integers(self, rows: IntegerMatrix) -> IntegerMatrix:
        """Return integer features in the metric for stored integers (n, d), each row by itself."""
        return self.kernel.encode(self.model.features(convert_to_float(rows)))

    def mapped(self, rows: IntegerMatrix) -> tuple[IntegerMatrix, Predictions]:
        """Return the same for queries, and what joins the votes on them."""
        features, predicted = self.model.mapped(convert_to_float(rows))
        return self.kernel.encode(features), predicted

    def shard(self, parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> SharedShard:
        """Return the records in this metric, which from now on change with the store's."""
        index = index_factory(settings.index)(self.kernel, self.public.shape[1])
        mapped = MappedIndex(index, self.integers)
        parts.shard.follow(mapped, parts.record_files.features_in_parts(len(parts.shard)))
        return SharedShard(parts.shard, audience.account, mapped)


def train_model(
    parts: OpenStore, audience: Audience, settings: IndKNNPlan
) -> tuple[IndKNNPlan, Floats]:
    """Train the model of an audience, first or again, on the records of now; inside a change.

    Charges and the model become durable together, or neither does. Returns the settings, with share
    and number of records settled, and float64 (m,): the share of its budget that this training
    would have cost each public row.
    """
    kernel, records = (
        parts.schema.kernel_of(None),
        parts.record_files.features.rows(len(parts.shard)),
    )
    noise, slack = draws_of(parts, audience, settings)
    settings, model = settled_model(
        settings, kernel, convert_to_float(records), _public_rows(parts.schema),
        parts.shard.subject_table_of(audience.account), audience.account, noise, slack,
    )[:2]  # fmt: skip
    audience.slack = slack.spent
    write_model(parts, audience, model)
    return settings, model.used


def begin_model(parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> IndKNNPlan:
    """Write what the model of a new audience is linear in, inside a change; shards train it."""
    lifted = _encoder(parts.schema).lifts
    settings = settings.settled(len(public := _public_rows(parts.schema)))
    features = ModelFeatures.planned(public, settings.size, lifted=lifted)
    write_parts(parts.database, audience.number, _texts(features.arrays()))
    return settings


def awaits_model(parts: OpenStore, audience: Audience) -> bool:
    """Tell whether an audience's model is yet to be trained: by a cluster, which is at it."""
    share = parse_json(audience.plan)["pinned"].get("model_share")
    return bool(share) and _USED not in read_parts(parts.database, audience.number)


def list_answering_audiences(parts: OpenStore) -> list[Audience]:
    return [one for one in parts.ledger.audiences.values() if not awaits_model(parts, one)]


def draws_of(
    parts: OpenStore, audience: Audience, settings: IndKNNPlan
) -> tuple[NoiseSource, DeltaSlackAccountant]:
    """Return the noise of an audience's next training, and what meters the cost of its grid."""
    number = 1 + int(read_parts(parts.database, audience.number).get(_TRAINED, 0))
    seed = settings.simulation_seed
    noise = create_noise_source(None if seed is None else seed + number * _OTHER_DRAWS)
    return noise, slack_meter(settings, audience.slack)


def write_model(parts: OpenStore, audience: Audience, model: PrivateModel) -> None:
    """Write a model that was trained, first or again, inside a change."""
    before, arrays = read_parts(parts.database, audience.number), model.arrays()
    if _USED in before:
        arrays[_USED] = np.minimum(_arrays(before)[_USED] + model.used, 1.0)
    counts = {PUT: before.get(PUT, "0"), _TRAINED: f"{1 + int(before.get(_TRAINED, 0))}"}
    write_parts(parts.database, audience.number, {**counts, **_texts(arrays)})


def settled_request(
    requested: IndKNNPlan, pinned: Mapping[str, Any], schema: StoreSchema
) -> IndKNNPlan:
    """Return an audience's settings with the share that was settled, and why it has no model.

    `requested`: as they were asked for. `pinned`: what its plan has fixed.
    """
    share = float(pinned.get("model_share", 0))
    if share or requested.model_share is not None:
        return requested.changed(model_share=share)
    n_public = 0 if schema.public is None else len(schema.public)
    return requested.without_model(requested.model_obstacle(n_public))


def stored_model(parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> StoredModel | None:
    """Return the model of an audience whose share is settled; None if it has none.

    Raises StorageFailed if it should be there and is not.
    """
    if not settings.model_share:
        return None
    parts_of, public = read_parts(parts.database, audience.number), parts.schema.public
    if public is None or not {_USED, _TRAINED, PUT} <= parts_of.keys():
        raise StoreDamaged("The ledger lacks a private model. Restore a backup.")
    try:
        rows, lifted = _public_rows(parts.schema), _encoder(parts.schema).lifts
        model = PrivateModel.kept(_arrays(parts_of), rows, settings.loss, lifted=lifted)
        times, n_asked = int(parts_of[_TRAINED]), int(parts_of[PUT])
        if times < 1 or n_asked < 0:
            raise ValueError
    except ValueError:  # and InvalidInput, which is one
        raise StoreDamaged("The ledger has a damaged private model. Restore a backup.") from None
    mapped = model.features(rows)
    return StoredModel(model, metric_kernel(mapped), mapped, n_asked, times)


def stored_features(parts: OpenStore, audience: Audience) -> tuple[ModelFeatures, FloatMatrix]:
    """Return what an audience's model is linear in, and the public rows beside it, as integers."""
    rows, kept = _public_rows(parts.schema), read_parts(parts.database, audience.number)
    return ModelFeatures.kept(rows, _arrays(kept), lifted=_encoder(parts.schema).lifts), rows


def _public_rows(schema: StoreSchema) -> FloatMatrix:
    assert schema.public is not None  # noqa: S101 (a model needs it)
    return convert_to_float(_encoder(schema).encode(schema.public))


def _encoder(schema: StoreSchema) -> Cosine:
    encoder = schema.kernel_of(None)
    assert isinstance(encoder, Cosine)  # noqa: S101 (a model needs it)
    return encoder


def _texts(arrays: Mapping[str, AnyArray]) -> dict[str, str]:
    """Return arrays as parts hold them: files of NumPy, which say their type and shape."""
    texts = {}
    for name, array in arrays.items():
        np.save(file := io.BytesIO(), array, allow_pickle=False)
        texts[name] = base64.b64encode(file.getvalue()).decode()
    return texts


def _arrays(parts_of: Mapping[str, str]) -> dict[str, AnyArray]:
    """Return the arrays among the parts of a model; raises ValueError for what is none."""
    files = {
        name: io.BytesIO(base64.b64decode(parts_of[name]))
        for name in MODEL_ARRAYS & parts_of.keys()
    }
    return {
        name: np.lib.format.read_array(file, allow_pickle=False) for name, file in files.items()
    }
