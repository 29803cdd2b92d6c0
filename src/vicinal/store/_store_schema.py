"""What all audiences of a store share and everybody may know: classes, kernel, index, reference."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from vicinal._arrays import FloatMatrix
from vicinal.errors import InvalidInput, StorageFailed, StoreDamaged
from vicinal.ledger import guarded, replace_file
from vicinal.mechanisms import RecordTargets
from vicinal.neighbours import (
    RBF,
    CentroidCells,
    Cosine,
    IndexFactory,
    Kernel,
    Precision,
    PublicCentroids,
    Radius,
    Reference,
    learn_cells,
)
from vicinal.planning import CENTROIDS, IndKNNPlan, first_index, kernel_for, options_of
from vicinal.predictors import checked_features, checked_reference, refuse_same_memory
from vicinal.store._extractors import StoreExtractor
from vicinal.targets import Target, declared_target

if TYPE_CHECKING:
    from vicinal.predictors import IndKNNEstimator


CELLS = "cells.npz"


def index_of(index: dict[str, Any], folder: Path) -> IndexFactory:
    """Return what makes the index of a store that is there.

    `index`: its kind, and options by name. `folder`: where the cells are, if it has some. Raises
    StorageFailed if they cannot be read.
    """
    if index["kind"] == CENTROIDS:
        return partial(PublicCentroids, cells=_load(folder / CELLS))
    return first_index(index)


def learnt_index(
    index: dict[str, Any], kernel: Kernel, public: FloatMatrix | None, radius: Radius, folder: Path
) -> IndexFactory | None:
    """Learn, from public facts, what an index still needs, and write it down; None if nothing.

    Raises InvalidInput if the public reference is too small for the cells that are asked for.
    """
    if index["kind"] != CENTROIDS or public is None:
        return None
    cells = learn_cells(Reference(kernel, kernel.encode(public)), radius, **options_of(index))
    content = io.BytesIO()
    np.savez(
        content,
        centroids=cells.centroids,
        offsets=cells.offsets,
        numbers=np.array([cells.factor, cells.margin], dtype=np.float64),
    )
    replace_file(folder / CELLS, content.getvalue())
    return partial(PublicCentroids, cells=cells)


def _load(path: Path) -> CentroidCells:
    try:
        with guarded(path), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            factor, margin = stored["numbers"].tolist()
            return CentroidCells(stored["centroids"], stored["offsets"], int(factor), margin)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, StorageFailed):
        raise StoreDamaged(f"{path} is damaged. Restore a backup.") from None


PUBLIC = "public.npy"


@dataclass(frozen=True, eq=False)
class ExtractedRows:
    """Rows that the store's extractor has been through already, see :meth:`StoreSchema.vectors`."""

    features: FloatMatrix

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.features)


@dataclass(eq=False)
class StoreSchema:
    """Public facts that are fixed when a store is made.

    - `target`: what records carry.
    - `n_features`: d, after extraction.
    - `kernel`: "cosine" or "rbf".
    - `bound`: largest norm of a feature vector under the RBF kernel.
    - `precision`: how vectors become integers.
    - `extractor`: how raw records become vectors.
    - `public`, array (m, d) or None: the public reference.
    - `index`: kind and options of the index that the records lie in.
    """

    target: Target
    n_features: int
    kernel: str
    bound: float | None
    precision: Precision
    extractor: StoreExtractor
    public: FloatMatrix | None
    index: dict[str, Any]

    @property
    def classes(self) -> list[Any]:
        """Class names; none where records carry something else."""
        return list(self.target.class_names.tolist())

    @cached_property
    def form(self) -> IndKNNEstimator:
        """An estimator that checks inputs and does nothing else."""
        from vicinal.predictors import estimator_for  # takes a second; only unusual rows need it

        form = estimator_for(self.target)
        form.n_features_in_ = self.n_features
        return form

    def kernel_of(self, bandwidth: float | None) -> Kernel:
        """Return the kernel; the bandwidth does not change stored integers."""
        if self.kernel == "cosine":
            return Cosine(self.precision)
        assert self.bound is not None  # noqa: S101 (RBF kernels have one)
        return RBF(bandwidth or 1.0, self.bound, self.precision)

    def vectors(self, raw: Any) -> FloatMatrix:
        """Return checked features (n, d) of raw records or queries.

        Raises InvalidInput if they are not what the store takes; no message repeats a value.
        """
        if isinstance(raw, ExtractedRows):
            return raw.features
        rows = self.extractor.transform(raw)
        if _plain(rows) and rows.shape[1] == self.n_features:
            return rows  # type: ignore[no-any-return]
        try:
            return checked_features(self.form, rows)
        except TypeError as error:
            raise InvalidInput(str(error)) from None

    def targets(self, y: npt.ArrayLike, size: int) -> RecordTargets:
        """Return what `size` records carry: class indices, or vectors."""
        return self.target.encode(y, size)

    def spec(self) -> str:
        """Return everything but arrays, as JSON."""
        return json.dumps(
            {
                "target": self.target.parameters,
                "n_features": self.n_features,
                "kernel": self.kernel,
                "bound": self.bound,
                "norm": self.precision.norm,
                "limit": self.precision.limit,
                "extractor": self.extractor.spec(),
                "public": self.public is not None,
                "index": self.index,
            }
        )

    def save_arrays(self, folder: Path) -> None:
        """Write the public reference, the public map and the model into `folder`."""
        self.extractor.save(folder)
        if self.public is not None:
            content = io.BytesIO()
            np.save(content, self.public, allow_pickle=False)
            replace_file(folder / PUBLIC, content.getvalue())

    @classmethod
    def load(cls, spec: str, folder: Path) -> Self:
        """Return the schema of a specification, its arrays read from `folder`."""
        fields = json.loads(spec)
        public = np.load(folder / PUBLIC, allow_pickle=False) if fields["public"] else None
        return cls(
            declared_target(fields["target"]),
            fields["n_features"],
            fields["kernel"],
            fields["bound"],
            Precision(fields["norm"], fields["limit"]),
            StoreExtractor.load(fields["extractor"], folder),
            public,
            fields["index"],
        )


def new_schema(
    X: Any, public: npt.ArrayLike | None, extractor: StoreExtractor, parameters: dict[str, Any]
) -> tuple[StoreSchema, FloatMatrix]:
    """Return the schema of a new store, and the features of its raw first records.

    `parameters` are those of the estimator whose targets they declare. Raises InvalidInput.
    """
    target = declared_target(parameters)
    options = {name: value for name, value in parameters.items() if value is not None}
    settings = IndKNNPlan.of_target(target, options)
    refuse_same_memory(X, public)
    features = extractor.transform(X)
    if not _plain(features):
        from vicinal.predictors import estimator_for

        features = checked_features(estimator_for(target), features, reset=True)
    reference = None if public is None else checked_reference(public, features)
    kernel = kernel_for(settings, reference)
    bound = getattr(kernel, "bound", None)
    args = (settings.kernel, bound, kernel.precision, extractor, reference)
    return StoreSchema(target, features.shape[1], *args, settings.index), features


def _plain(rows: Any) -> bool:
    """Tell whether rows are as they must be already: checking all else takes a millisecond.

    And loads scikit-learn, which takes a second.
    """
    return bool(
        type(rows) is np.ndarray
        and rows.dtype in (np.float32, np.float64)
        and rows.ndim == 2
        and rows.size
        and rows.flags.c_contiguous
        and np.isfinite(rows).all()
    )
