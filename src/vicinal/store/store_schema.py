"""The public schema of a store, shared by all audiences: target, features, kernel, index.

*Raw* rows are records or queries as given: vectors, images, texts or rows of a table. An extractor
computes a vector of features from each. `spec` is a description in JSON, `folder` the store's.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from contextlib import suppress
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
from vicinal.neighbours.kernels import RBF, Cosine, Kernel, Precision
from vicinal.planning.engine_factory import create_kernel
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.inputs import read_reference, refuse_same_memory
from vicinal.progress import begin_progress
from vicinal.tabular import (
    Names,
    align_columns,
    convert_to_floats,
    get_explicit_names,
    read_matrix,
    read_names,
    refuse_other_width,
)
from vicinal.targets.kinds import declared_target
from vicinal.targets.target import Target

if TYPE_CHECKING:
    from vicinal.features.public_map import PublicMap

EXTRACTOR_CLASSES: dict[str, str | None] = {
    "columns": None,
    "hog": "HOGFeatures",
    "image": "ImageFeatures",
    "text": "SentenceFeatures",
    "table": "TableFeatures",
}
"""Name of the class in `vicinal.features` for each kind of extractor; None: rows are numbers."""

MAP_FILE = "map.npz"
"""File in a store's folder with the extractor's map, a transformation learned from public rows."""


@dataclass(frozen=True)
class StoreExtractor:
    """A fixed feature extractor, and an optional map learned from public rows; all is public.

    Attributes
    ----------
    kind : {"columns", "hog", "image", "text", "table"}
        Kind of extractor, which computes rows of numbers from raw records.
    options : dict
        Parameters of the extractor's class; those of "table" include the schema as plain values.
    public_map : PublicMap or None
        Transformation learned from public rows (scaled principal components) that is applied to the
        numbers.
    columns : list of str or None
        Names of the columns of a table of raw records, by which later tables are matched.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import StoreExtractor
    >>> raw = np.random.default_rng(0).normal(size=(100, 5))
    >>> extractor, features = StoreExtractor("columns").fit_public_map(raw, n_components=3)
    >>> features.shape, extractor.transform(raw[:2]).shape
    ((100, 3), (2, 3))
    """

    kind: str = "columns"
    options: dict[str, Any] = field(default_factory=dict)
    public_map: PublicMap | None = None
    columns: list[str] | None = None

    def __post_init__(self) -> None:
        """Raise InvalidInput for an unknown kind or invalid options; normalize a table's schema."""
        checks.check_choice("features", self.kind, tuple(EXTRACTOR_CLASSES))
        if self.kind == "table":
            from vicinal.features.table_features import as_schema  # needs scikit-learn

            schema = as_schema(self.options.get("schema")).require_features()
            object.__setattr__(self, "options", {**self.options, "schema": schema.to_dict()})
        extractor = self._extractor  # raises InvalidInput for options that it does not have
        if self.raw_form == "images":
            extractor.check_parameters()

    @property
    def raw_form(self) -> str:
        """The form of raw records: "vectors", "images", "texts", or "rows" of named columns."""
        return {"columns": "vectors", "text": "texts", "table": "rows"}.get(self.kind, "images")

    @cached_property
    def digest(self) -> str | None:
        """SHA-256 of the model of a text extractor, in hexadecimal digits; None for other kinds."""
        return compute_model_digest(self._extractor.model_folder) if self.kind == "text" else None

    @property
    def edition(self) -> int:
        """Version of the definition of the extractor's computation, from 1."""
        return int(getattr(self._extractor, "edition", 1))

    def load_network(self) -> None:
        """Load the network of images or texts, if there is one; else the first query waits for it.

        Raises the errors of :meth:`transform`, such as MissingExtra.
        """
        if self.kind in ("image", "text"):
            self._extractor.load_network()

    def fit_public_map(
        self, raw: Any, n_components: int, power: float = 0.5
    ) -> tuple[Self, AnyArray]:
        """Return this extractor with a map learned from public raw rows, and their features.

        Parameters
        ----------
        raw : rows
            Public raw records.
        n_components : int
            Number of principal components of the map; at most the number of rows, and of numbers
            per row, is used.
        power : float
            Exponent, 0 to 1: each component is divided by its public standard deviation to this
            power.
        """
        from vicinal.features.public_map import PublicMap  # needs scikit-learn

        extractor = self.with_columns_of(raw)
        numbers = extractor._extract_numbers(raw)
        max_components = min(n_components, *np.shape(numbers))
        public_map = PublicMap(n_components=max_components, power=power).fit(numbers)
        return replace(extractor, public_map=public_map), public_map.transform(numbers)

    def transform(self, raw: Any) -> Any:
        """Return features (n, d) of n raw rows, each computed from its own row alone."""
        numbers = self._extract_numbers(raw)
        return numbers if self.public_map is None else self.public_map.transform(numbers)

    def warn_of_unexpected_values(self, queries: Any) -> None:
        """Warn of misspelt categories and of clipped numbers in a table of **public** queries."""
        if self.kind == "table" and not isinstance(queries, ExtractedRows):
            from vicinal.features.table_features import as_schema, warn_of_unexpected_values

            schema = as_schema(self.options["schema"])
            warn_of_unexpected_values("The queries", queries, schema)

    def with_columns_of(self, raw: Any) -> Self:
        """Return a copy of this extractor that has the column names of `raw`, a table of numbers.

        Columns of later tables are matched by these names. The extractor is returned unchanged if
        it has names already or is of another kind, or if `raw` has no names.
        """
        if self.kind != "columns" or self.columns is not None:
            return self
        names = get_explicit_names(self._map_names or read_names("X", raw))
        return self if names is None else replace(self, columns=names)

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns from which features are computed; empty if columns have no names."""
        if self.kind != "table":
            return self.columns or []
        from vicinal.features.table_features import as_schema  # needs scikit-learn

        return as_schema(self.options["schema"]).names

    @property
    def _map_names(self) -> Names | None:
        """Names of the columns from which the map was learned, or None."""
        return None if self.public_map is None else vars(self.public_map).get("_column_names")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields except the map as plain values, with the digest of a text model."""
        facts = {
            "kind": self.kind,
            "edition": self.edition,
            "options": json.loads(json.dumps(self.options)),
            "mapped": self.public_map is not None,
            "columns": self.columns,
        }
        return facts if self.digest is None else {**facts, "model": self.digest}

    @classmethod
    def load(cls, spec: dict[str, Any], folder: Path) -> Self:
        """Return the extractor that :meth:`to_dict` described by `spec`, with its map in `folder`.

        Raises StorageFailed if its model cannot be read or has changed.
        """
        public_map = None
        if spec["mapped"]:
            from vicinal.features.public_map import PublicMap  # needs scikit-learn

            public_map = PublicMap.load(folder / MAP_FILE)
        extractor = cls(spec["kind"], dict(spec["options"]), public_map, spec["columns"])
        extractor.refuse_difference(spec, "store", "Bring it back, or restore a backup.")
        return extractor

    def refuse_difference(self, spec: dict[str, Any], owner: str, remedy: str) -> None:
        """Raise StorageFailed if the text model or the computation's version is not that of `spec`.

        `spec`: description of an extractor (:meth:`to_dict`). `owner`: "store" or "student", which
        was made with that extractor. `remedy`: sentence on how to get the model.
        """
        if spec.get("model") != self.digest:
            raise StorageFailed(
                f"The extractor's model is not the one that this {owner} was made with. Features "
                f"of another one cannot be compared. {remedy}"
            )
        if spec["edition"] != self.edition:
            raise StorageFailed(
                f"The {owner} was made with another version of its extractor. Features of the two "
                f"cannot be compared. Open the {owner} with the version of vicinal that made it, "
                "or make a new one from the raw records."
            )

    @cached_property
    def _extractor(self) -> Any:
        """Instance of the extractor's class, which keeps a loaded network; None for "columns"."""
        class_name = EXTRACTOR_CLASSES[self.kind]
        try:
            return None if class_name is None else getattr(features, class_name)(**self.options)
        except TypeError:
            raise InvalidInput(
                f"The 'options' of an extractor must be parameters of it. Those of {self.kind!r} "
                "lack one, or have one too many."
            ) from None

    def _extract_numbers(self, raw: Any) -> Any:
        """Return the numbers (n, .) computed from n raw records, before the map is applied."""
        if self.kind == "columns":
            names = self._map_names if self.columns is None else tuple(self.columns)
            return align_columns("X", raw, names, "the store's first records")
        if self.kind == "table":
            return self._extractor.transform(raw)
        return self._extractor.transform(
            raw, progress=begin_progress("features", getattr(raw, "__len__", int)())
        )


def compute_model_digest(model: Path) -> str:
    """Return the SHA-256 of a model's file, or of its folder's files and names, as hex digits.

    Raises InvalidInput if the path `model` does not exist; StorageFailed if it cannot be read.
    """
    if model.is_file():
        return compute_file_digest(model).hex()
    if not model.is_dir():
        raise InvalidInput(f"There is no model at {model}.")
    with translate_os_errors(model):
        files = sorted(path for path in model.rglob("*") if path.is_file())
    lines = (
        f"{path.relative_to(model).as_posix()} {compute_model_digest(path)}\n" for path in files
    )
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def compute_file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file, which may be larger than memory."""
    with translate_os_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


PUBLIC_FILE = "public.npy"  # file of the public reference in a store's folder


@dataclass(frozen=True, eq=False)
class ExtractedRows:
    """Features (n, d) from the store's extractor, accepted by methods that take raw rows."""

    features: FloatMatrix

    def __len__(self) -> int:
        return len(self.features)


@dataclass(eq=False)
class StoreSchema:
    """Public facts that are fixed when a store is created.

    - `target`: kind and parameters of the records' targets: classes, numbers or several labels.
    - `n_features`: number d of features after extraction.
    - `kernel`: "cosine" or "rbf".
    - `bound`: largest norm of a feature vector, to which longer ones are scaled; None for a cosine
      kernel of directions alone.
    - `precision`: rounding of features to integers: their norm, and the limit of each integer.
    - `extractor`: computes features of raw records.
    - `public`, array (m, d) or None: the public reference.
    - `index`: kind and options of the nearest-neighbour index of the records.
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
        """Class names; empty for other kinds of target."""
        return self.target.names if self.target.is_class_vote else []

    def create_kernel(self, bandwidth: float | None = None) -> Kernel:
        """Return the kernel that encodes features as integers and computes similarities.

        `bandwidth`: length scale of an RBF kernel. It does not affect the integers, so it may be
        None wherever the kernel only encodes.
        """
        if self.kernel == "cosine":
            return Cosine(self.precision, self.bound)
        assert self.bound is not None  # noqa: S101 (RBF kernels have one)
        return RBF(bandwidth or 1.0, self.bound, self.precision)

    @property
    def width(self) -> int:
        """Number of integers per encoded record: d, or d + 1 where the kernel adds a column."""
        return self.create_kernel().width(self.n_features)

    def extract(self, raw: Any) -> FloatMatrix:
        """Return checked features (n, d) of raw records or queries, or of :class:`ExtractedRows`.

        Raises InvalidInput if the rows are unusable; the message has none of their values.
        """
        if isinstance(raw, ExtractedRows):
            return raw.features
        try:
            rows = self.extractor.transform(raw)
        except InvalidInput as error:
            if self.extractor.kind != "table" or isinstance(error, UnusableRows):
                raise
            raise UnusableRows(str(error), str(error)) from None
        matrix = read_matrix("X", rows)
        refuse_other_width(matrix.values, self.n_features, "the store")
        return convert_to_floats("X", matrix)

    def extract_queries(self, raw: Any) -> FloatMatrix:
        """Return :meth:`extract` of queries; raises UnusableRows if one has no value at all.

        Its answer would be the same for every such query, and would still be charged.
        """
        features = self.extract(raw)
        if self._empty_features is not None:
            from vicinal.features.table_features import refuse_rows_without_values

            refuse_rows_without_values(features, self._empty_features)
        return features

    @cached_property
    def _empty_features(self) -> FloatMatrix | None:
        """Features (1, d) of a row of a table without any value; None if such rows are refused."""
        if self.extractor.kind != "table":
            return None
        names = self.extractor.options["schema"]["columns"]
        with suppress(InvalidInput):
            return self.extract({name: [None] for name in names})
        return None

    def to_json(self) -> str:
        """Return all fields except arrays (public reference, extractor's map) as JSON."""
        return json.dumps(
            {
                "target": self.target.parameters,
                "n_features": self.n_features,
                "kernel": self.kernel,
                "bound": self.bound,
                "norm": self.precision.norm,
                "limit": self.precision.limit,
                "extractor": self.extractor.to_dict(),
                "public": self.public is not None,
                "index": self.index,
            }
        )

    def save_arrays(self, folder: Path) -> None:
        """Write the public reference and the extractor's learned map into the store's `folder`."""
        if self.extractor.public_map is not None:
            self.extractor.public_map.save(folder / MAP_FILE)
        if self.public is not None:
            content = io.BytesIO()
            np.save(content, self.public, allow_pickle=False)
            replace_file(folder / PUBLIC_FILE, content.getvalue())

    @classmethod
    def load(cls, spec: str, folder: Path) -> Self:
        """Return the schema that :meth:`to_json` wrote as `spec`, with its arrays in `folder`."""
        fields = parse_json(spec)
        public = np.load(folder / PUBLIC_FILE, allow_pickle=False) if fields["public"] else None
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


def create_schema(
    X: Any,
    public: npt.ArrayLike | None,
    extractor: StoreExtractor | None,
    parameters: dict[str, Any],
) -> tuple[StoreSchema, FloatMatrix]:
    """Return the schema of a new store, and the features (n, d) of its raw first records.

    `X` (n, .): raw records. `public` (m, d): features of the public reference, or None.
    `extractor`: computes features of raw records; None if these are features. `parameters`:
    parameters of an Ind-KNN estimator by name, which declare the target, kernel and index. Raises
    InvalidInput if an argument is unusable.
    """
    target = declared_target(parameters)
    options = {name: value for name, value in parameters.items() if value is not None}
    plan = IndKNNPlan.of_target(target, options)
    refuse_same_memory(X, public)
    if extractor is None:
        extractor = StoreExtractor()
    extractor = checks.check_instance("extractor", extractor, StoreExtractor).with_columns_of(X)
    vectors = convert_to_floats("X", read_matrix("X", extractor.transform(X)))
    names = None if extractor.columns is None else tuple(extractor.columns)
    if extractor.kind != "columns" or extractor.public_map is not None:
        names = None  # public rows are features then, which do not have these columns
    reference = None if public is None else read_reference(public, vectors, names)
    kernel = create_kernel(plan, reference)
    schema = StoreSchema(
        target,
        vectors.shape[1],
        plan.kernel,
        getattr(kernel, "bound", None),
        kernel.precision,
        extractor,
        reference,
        plan.index,
    )
    return schema, vectors
