"""Private models of a store: each audience's own, trained once, durable with its charges.

The metric of a model is computed from stored integer features and public weights, record by record.
So the record files stay what they are, whichever audiences there are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal._arrays import FloatMatrix, Floats
from vicinal.engine import MappedIndex, SharedShard
from vicinal.errors import StoreDamaged
from vicinal.ledger import PUT, Audience, bytes_of, read_parts, text_of, write_parts
from vicinal.linear import (
    KERNEL_ARRAYS,
    KernelMap,
    LinearModel,
    ModelFeatures,
    PrivateModel,
    metric_kernel,
)
from vicinal.mechanisms import randomness
from vicinal.neighbours import Cosine, IntegerMatrix, Kernel
from vicinal.planning import (
    IndKNNPlan,
    first_index,
    numbers,
    settled_model,
    slack_meter,
)
from vicinal.store._opening import OpenStore
from vicinal.store._store_schema import StoreSchema

_WEIGHTS, _USED, _TRAINED = "weights", "used", "trained"
_SHAPE = "components"
"""The part that says how many components a model has, where it has any."""
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
        return self.kernel.encode(self.model.features(numbers(rows)))

    def mapped(self, rows: IntegerMatrix) -> tuple[IntegerMatrix, Floats]:
        """Return the same for queries, and what joins the votes on them."""
        features, shares = self.model.mapped(numbers(rows))
        return self.kernel.encode(features), shares

    def shard(self, parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> SharedShard:
        """Return the records in this metric, which from now on change with the store's."""
        index = first_index(settings.index)(self.kernel, self.public.shape[1])
        mapped = MappedIndex(index, self.integers)
        parts.shard.follow(mapped, parts.record_files.features_in_parts(len(parts.shard)))
        return SharedShard(parts.shard, audience.account, mapped)


def train_model(parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> IndKNNPlan:
    """Train the model of a new audience, if its plan has one; inside a change of the ledger.

    Charges and the model become durable together, or neither does. Returns the settings, with share
    and, where there is a public reference, number of records settled.
    """
    schema = parts.schema
    n_public = 0 if schema.public is None else len(schema.public)
    if not settings.may_train(n_public):
        return settings.settled(n_public)
    settings, model = _trained(parts, audience, settings, 1)
    if model is not None:
        content = {**_content(model.model), _USED: text_of(model.used), _TRAINED: "1", PUT: "0"}
        write_parts(parts.database, audience.number, content)
    return settings


def settled_request(
    requested: IndKNNPlan, pinned: Mapping[str, Any], schema: StoreSchema
) -> IndKNNPlan:
    """Return an audience's settings with the share that was settled, and why it has no model.

    - `requested`: as they were asked for.
    - `pinned`: what its plan has fixed: no share in a cluster, which trains no model.
    """
    share = float(pinned.get("model_share", 0))
    if share or requested.model_share is not None:
        return requested.changed(model_share=share)
    n_public = 0 if schema.public is None else len(schema.public)
    known = requested.changed(n_records=pinned.get("n_records", requested.n_records))
    why = known.settled(n_public).why_no_model
    return requested.without_model(why or "a cluster trains none")


def retrain_model(
    parts: OpenStore, audience: Audience, settings: IndKNNPlan, before: StoredModel
) -> Floats:
    """Train an audience's model again on the records of now, as :func:`train_model` does.

    Returns float64 (m,): the share of its budget that this would have cost each public row.
    """
    trained = before.trained + 1
    _, model = _trained(parts, audience, settings, trained)
    assert model is not None  # noqa: S101 (its share is settled, and above 0)
    used = np.minimum(before.model.used + model.used, 1.0)
    content = {**_content(model.model), _USED: text_of(used), _TRAINED: f"{trained}"}
    write_parts(parts.database, audience.number, content)
    return model.used


def _trained(
    parts: OpenStore, audience: Audience, settings: IndKNNPlan, number: int
) -> tuple[IndKNNPlan, PrivateModel | None]:
    """Return settled settings, and what the records in the store make of training `number`."""
    kernel, public = parts.schema.kernel_of(None), parts.schema.public
    assert public is not None  # noqa: S101 (checked by both callers)
    size = len(parts.shard)
    records = numbers(parts.record_files.features.rows(size))
    slack, seed = slack_meter(settings, audience.slack), settings.simulation_seed
    noise = randomness(None if seed is None else seed + number * _OTHER_DRAWS)
    settings, model = settled_model(
        settings, kernel, records, numbers(kernel.encode(public)),
        parts.shard.subject_table_of(audience.account), audience.account, noise, slack,
    )  # fmt: skip
    audience.slack = slack.spent
    return settings, model


def stored_model(parts: OpenStore, audience: Audience, settings: IndKNNPlan) -> StoredModel | None:
    """Return the model of an audience whose share is settled; None if it has none.

    Raises StorageFailed if it should be there and is not.
    """
    if not settings.model_share:
        return None
    parts_of, public = read_parts(parts.database, audience.number), parts.schema.public
    if public is None or not {_WEIGHTS, _USED, _TRAINED, PUT} <= parts_of.keys():
        raise StoreDamaged("The ledger lacks a private model. Restore a backup.")
    weights = np.frombuffer(bytes_of(parts_of[_WEIGHTS]), "<f8").reshape(
        -1, len(settings.class_names)
    )
    encoder = parts.schema.kernel_of(None)
    assert isinstance(encoder, Cosine)  # noqa: S101 (a model needs it)
    rows = numbers(encoder.encode(public))
    used = np.frombuffer(bytes_of(parts_of[_USED]), "<f8")
    features = ModelFeatures.of(rows, _stored_kernel(parts_of), lifted=encoder.lifts)
    model = PrivateModel(LinearModel(weights, features), rows, used, settings.class_shares)
    mapped = model.features(rows)
    trained = int(parts_of[_TRAINED])
    kernel = metric_kernel(mapped)
    return StoredModel(model, kernel, mapped, int(parts_of[PUT]), trained)


def _content(model: LinearModel) -> dict[str, str]:
    """Return a model's weights and kernel as parts in the ledger."""
    parts, kernel = {_WEIGHTS: text_of(model.weights)}, model.features.kernel
    if kernel is not None:
        parts[_SHAPE] = f"{kernel.width}"
        parts |= {name: text_of(array) for name, array in kernel.arrays().items()}
    return parts


def _stored_kernel(parts_of: Mapping[str, str]) -> KernelMap | None:
    """Return the kernel that :func:`_content` has written, if the model has one."""
    if _SHAPE not in parts_of:
        return None
    arrays = {name: np.frombuffer(bytes_of(parts_of[name]), "<i2") for name in KERNEL_ARRAYS}
    width = int(parts_of[_SHAPE])
    projection = arrays["projection"].reshape(-1, width)
    landmarks = arrays["landmarks"].reshape(len(projection), -1)
    return KernelMap(**{**arrays, "projection": projection, "landmarks": landmarks})
