"""What all audiences of a store share and everybody may know: target, features, kernel, index."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks, features
from vicinal.arrays import AnyArray, FloatMatrix
from vicinal.errors import InvalidInput, StorageFailed, UnusableRows
from vicinal.ledger.files import replace_file, translate_os_errors
from vicinal.ledger.sealed_files import parse_json
from vicinal.mechanisms.subject_table import RecordTargets
from vicinal.neighbours.kernels import RBF, Cosine, Kernel, Precision
from vicinal.planning.engine_factory import kernel_for
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.inputs import checked_reference, refuse_same_memory
from vicinal.progress import step
from vicinal.tabular import (
    Names,
    align_columns,
    checked_floats,
    given_names,
    read_matrix,
    read_names,
    refuse_other_width,
)
from vicinal.targets.kinds import declared_target
from vicinal.targets.target import Target

if TYPE_CHECKING:
    from vicinal.features.public_map import PublicMap

KINDS: dict[str, str | None] = {
    "columns": None,
    "hog": "HOGFeatures",
    "image": "ImageFeatures",
    "text": "SentenceFeatures",
    "table": "TableFeatures",
}
"""Extractors by name; "columns" takes numbers as they are. Loaded for the store that has one."""

VECTORS, IMAGES, TEXTS, ROWS = "vectors", "images", "texts", "rows"

MAP = "map.npz"


@dataclass(frozen=True)
class StoreExtractor:
    """A fixed extractor, then perhaps a map learnt from public rows. All of it is public.

    Attributes
    ----------
    kind : {"columns", "hog", "image", "text", "table"}
        How raw records become numbers.
    options : dict
        Parameters of the extractor's class; of "table" the schema is one, as JSON has it.
    public_map : PublicMap or None
        Applied to the numbers.
    columns : list of str or None
        Names of the columns of a file that raw records are read from, for whoever reads files.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import StoreExtractor
    >>> raw = np.random.default_rng(0).normal(size=(100, 5))
    >>> extractor, features = StoreExtractor("columns").fitted(raw, n_components=3)
    >>> features.shape, extractor.transform(raw[:2]).shape
    ((100, 3), (2, 3))
    """

    kind: str = "columns"
    options: dict[str, Any] = field(default_factory=dict)
    public_map: PublicMap | None = None
    columns: list[str] | None = None

    def __post_init__(self) -> None:
        checks.check_choice("features", self.kind, tuple(KINDS))
        if self.kind == "table":
            from vicinal.features.table_features import as_schema  # needs scikit-learn

            schema = as_schema(self.options.get("schema")).usable()
            plain = {**self.options, "schema": schema.to_dict()}
            object.__setattr__(self, "options", plain)
        _ = self._rows

    @property
    def takes(self) -> str:
        """What raw rows are: "vectors", "images", "texts", or "rows" of named columns."""
        return {"columns": VECTORS, "text": TEXTS, "table": ROWS}.get(self.kind, IMAGES)

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of a model for texts, in hexadecimal digits; None where there is none."""
        return digest_of(self._rows.model_folder) if self.kind == "text" else None

    @property
    def edition(self) -> int:
        """Which definition of its arithmetic the extractor has; 1 where it has none of its own."""
        return int(getattr(self._rows, "edition", 1))

    def fitted(self, raw: Any, n_components: int, power: float = 0.5) -> tuple[Self, AnyArray]:
        """Return an extractor with a map learnt from public raw rows, and their features.

        Parameters
        ----------
        raw : rows
            Public.
        n_components, power
            Of :class:`~vicinal.features.PublicMap`, with fewer components if rows are few.
        """
        from vicinal.features.public_map import PublicMap  # needs scikit-learn

        extractor = self.with_columns_of(raw)
        numbers = extractor._numbers(raw)
        components = min(n_components, *np.shape(numbers))
        public_map = PublicMap(n_components=components, power=power).fit(numbers)
        return replace(extractor, public_map=public_map), public_map.transform(numbers)

    def transform(self, raw: Any) -> Any:
        """Return features (n, d) of raw rows; row i depends on raw row i alone."""
        numbers = self._numbers(raw)
        return numbers if self.public_map is None else self.public_map.transform(numbers)

    def with_columns_of(self, raw: Any) -> Self:
        """Return an extractor of numbers that knows the names of a table's columns.

        Later tables are matched by them. An extractor that has names, or takes other rows, and one
        of rows without names, stays as it is.
        """
        if self.kind != "columns" or self.columns is not None:
            return self
        names = given_names(self._map_names or read_names("X", raw))
        return self if names is None else replace(self, columns=names)

    @property
    def _map_names(self) -> Names | None:
        return None if self.public_map is None else vars(self.public_map).get("_column_names")

    def spec(self) -> dict[str, Any]:
        """Return kind, options and the model's digest, as JSON has them."""
        plain: dict[str, Any] = json.loads(json.dumps(self.options))
        mapped = self.public_map is not None
        facts = {
            "kind": self.kind, "edition": self.edition, "options": plain, "mapped": mapped,
            "columns": self.columns,
        }  # fmt: skip
        return facts if self.digest is None else {**facts, "model": self.digest}

    def save(self, folder: Path) -> None:
        """Write the map into `folder`."""
        if self.public_map is not None:
            self.public_map.save(folder / MAP)

    @classmethod
    def load(cls, spec: dict[str, Any], folder: Path) -> Self:
        """Return the extractor of a specification, its map read from `folder`.

        Raises
        ------
        StorageFailed
            If its model, or the definition of its arithmetic, is not the one that the store was
            made with, or cannot be read.
        """
        from vicinal.features.public_map import PublicMap  # needs scikit-learn

        public_map = PublicMap.load(folder / MAP) if spec["mapped"] else None
        extractor = cls(spec["kind"], dict(spec["options"]), public_map, spec["columns"])
        if spec.get("model") not in (None, extractor.digest):
            raise StorageFailed(
                "The extractor's model is not the one that this store was made with. Features of "
                "another one cannot be compared. Bring it back, or restore a backup."
            )
        if spec["edition"] != extractor.edition:
            raise StorageFailed(
                "The store was made with another version of its extractor. Features of the two "
                "cannot be compared. Open the store with the version of vicinal that made it, or "
                "make a new one from the raw records."
            )
        return extractor

    @cached_property
    def _rows(self) -> Any:
        """The extractor itself, which keeps a network once it is loaded."""
        kind = KINDS[self.kind]
        try:
            return None if kind is None else getattr(features, kind)(**self.options)
        except TypeError:
            raise InvalidInput(
                f"The 'options' of an extractor must be parameters of it. Those of {self.kind!r} "
                "lack one, or have one too many."
            ) from None

    def _numbers(self, raw: Any) -> Any:
        if self.kind == "columns":
            names = self._map_names if self.columns is None else tuple(self.columns)
            return align_columns("X", raw, names, "the store's first records")
        if self.kind == "table":
            return self._rows.transform(raw)
        return self._rows.transform(raw, progress=step("features", getattr(raw, "__len__", int)()))


def digest_of(model: Path) -> str:
    """Return the SHA-256 of a file, or of a folder's files with their names, in hexadecimal.

    Raises InvalidInput if there is neither. Raises StorageFailed if it cannot be read.
    """
    if model.is_file():
        return file_digest(model).hex()
    if not model.is_dir():
        raise InvalidInput(f"There is no model at {model}.")
    with translate_os_errors(model):
        files = sorted(path for path in model.rglob("*") if path.is_file())
    listed = (f"{path.relative_to(model).as_posix()} {digest_of(path)}\n" for path in files)
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def file_digest(path: Path) -> bytes:
    with (
        translate_os_errors(path),
        path.open("rb") as file,
    ):  # a stranger's may be larger than memory
        return hashlib.file_digest(file, "sha256").digest()


PUBLIC = "public.npy"


@dataclass(frozen=True, eq=False)
class ExtractedRows:
    """Rows that the store's extractor has been through already, see :meth:`StoreSchema.vectors`."""

    features: FloatMatrix

    def __len__(self) -> int:
        return len(self.features)


@dataclass(eq=False)
class StoreSchema:
    """Public facts that are fixed when a store is made.

    - `target`: what records carry.
    - `n_features`: d, after extraction.
    - `kernel`: "cosine" or "rbf".
    - `bound`: largest norm of a feature vector; None under a cosine that goes by directions alone.
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
        return self.target.names if self.target.voted else []

    def kernel_of(self, bandwidth: float | None) -> Kernel:
        """Return the kernel; the bandwidth does not change stored integers."""
        if self.kernel == "cosine":
            return Cosine(self.precision, self.bound)
        assert self.bound is not None  # noqa: S101 (RBF kernels have one)
        return RBF(bandwidth or 1.0, self.bound, self.precision)

    @property
    def width(self) -> int:
        return self.kernel_of(None).width(self.n_features)

    def vectors(self, raw: Any) -> FloatMatrix:
        """Return checked features (n, d) of raw records or queries.

        Raises InvalidInput if they are not what the store takes; no message repeats a value.
        """
        if isinstance(raw, ExtractedRows):
            return raw.features
        try:
            rows = self.extractor.transform(raw)
        except InvalidInput as error:
            if self.extractor.kind != "table" or isinstance(error, UnusableRows):
                raise
            raise UnusableRows(str(error), str(error)) from None
        read = read_matrix("X", rows)
        refuse_other_width(read.values, self.n_features, "the store")
        return checked_floats("X", read)

    def targets(self, y: npt.ArrayLike, size: int) -> RecordTargets:
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
        """Write the public reference and the public map into `folder`."""
        self.extractor.save(folder)
        if self.public is not None:
            content = io.BytesIO()
            np.save(content, self.public, allow_pickle=False)
            replace_file(folder / PUBLIC, content.getvalue())

    @classmethod
    def load(cls, spec: str, folder: Path) -> Self:
        fields = parse_json(spec)
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
    extractor = extractor.with_columns_of(X)
    vectors = checked_floats("X", read_matrix("X", extractor.transform(X)))
    names = None if extractor.columns is None else tuple(extractor.columns)
    if extractor.kind != "columns" or extractor.public_map is not None:
        names = None  # public rows are features then, which are not these columns
    reference = None if public is None else checked_reference(public, vectors, names)
    kernel = kernel_for(settings, reference)
    bound = getattr(kernel, "bound", None)
    args = (settings.kernel, bound, kernel.precision, extractor, reference)
    return StoreSchema(target, vectors.shape[1], *args, settings.index), vectors
