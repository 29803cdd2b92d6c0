"""Options for the feature extractor of a store and for its public reference rows.

Everywhere in this module, `label_column` and `subject_column` are the columns of labels and of
subject ids in the public file, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from typer import Option

from vicinal.errors import InvalidInput, warn_caller
from vicinal.store import input_files

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.arrays import AnyArray, Bools, FloatMatrix
    from vicinal.store.store_schema import StoreExtractor

FROM_SCHEMA = "from-schema"

_MIN_REFERENCE_ROWS = 50  # with fewer, the radius of a neighbourhood is too uncertain
_N_GENERATED_ROWS = 2000  # reference rows that are generated from a schema
_MAX_NAMES_SHOWN = 5  # constant features that a warning names


@dataclass(frozen=True, slots=True, eq=False)
class PublicLabels:
    """Labels and subject ids of public rows, for simulations and comparisons.

    `is_complete`, bool (m,): whether a public row has a label, and an id if there are ids.
    `labels`, `subjects`: class names (m',), and subject ids (m',) or None, of these rows.
    """

    is_complete: Bools
    labels: AnyArray
    subjects: AnyArray | None = None

    @classmethod
    def from_all_rows(cls, labels: AnyArray, subjects: AnyArray | None = None) -> Self:
        """Return labels (m,), and ids (m,) or None, of rows that all have them."""
        import numpy as np

        return cls(np.ones(len(labels), dtype=np.bool_), labels, subjects)

    def get_labels(self, rows: AnyArray) -> tuple[Bools, AnyArray]:
        """Return which of `rows` have labels, bool (k,), and these labels; `rows`: indices (k,)."""
        import numpy as np

        is_labelled = self.is_complete[rows]
        label_indices = np.cumsum(self.is_complete) - 1
        return is_labelled, self.labels[label_indices[rows[is_labelled]]]


@dataclass(frozen=True, slots=True)
class ExtractorOptions:
    """Options that select and configure a feature extractor, without a map of its features."""

    columns: Annotated[
        list[str] | None,
        Option(help="Feature columns, separated by commas or repeated. Default: all others."),
    ] = None
    schema: Annotated[Path | None, Option(help="Public schema, for --features table.")] = None
    features: Annotated[
        str, Option(help="How rows become vectors: columns, table, hog, image or text.")
    ] = "columns"
    model: Annotated[str | None, Option(help="Folder of a public model for text.")] = None

    @property
    def inputs(self) -> dict[str, Path | None]:
        """Paths that the options name, by option."""
        return {"schema": self.schema, "model": None if self.model is None else Path(self.model)}

    def build_extractor(
        self, public: Path | None, other_columns: Sequence[str | None], private: Path | None = None
    ) -> StoreExtractor:
        """Return the extractor, without a map.

        Names of feature columns come from the options, or else from the file `public` of public
        rows, all but `other_columns` (of labels, targets and subjects, or None). The file `private`
        of records, or None, is not read, because its first line may be a record instead of a
        header: raises InvalidInput if it is a table and its feature columns are named by neither.
        """
        from vicinal.datasets.tables import normalize_column_name, read_table
        from vicinal.features.table_schema import TableSchema
        from vicinal.parameters import parse_name_list
        from vicinal.store.store_schema import StoreExtractor

        options: dict[str, Any] = {}
        if self.model is not None:
            options["model"] = self.model
        if self.features == "table" and self.schema is None:
            raise InvalidInput(
                "The 'schema' option must name the public schema of the table, for --features "
                "table. Draft it with: vicinal schema PUBLIC.parquet -o schema.json. Without a "
                "public table, write it by hand as in docs/reference/table-schema.md."
            )
        if self.schema is not None:
            schema = TableSchema.load(self.schema).require_features()
            schema.refuse_features(other_columns)
            options["schema"] = schema.to_dict()
        columns = [
            normalize_column_name(name) for name in parse_name_list(self.columns or [])
        ] or None
        excluded = {normalize_column_name(name) for name in other_columns if name is not None}
        needs_names = self.features == "columns" and columns is None
        if needs_names and public and input_files.is_table(public):
            names = read_table(public).column_names
            columns = [name for name in names if name not in excluded]
        extractor = StoreExtractor(self.features, options, None, columns)
        is_table = private is not None and input_files.is_table(private)
        if extractor.kind == "columns" and columns is None and is_table:
            raise InvalidInput(
                "The 'columns' option must name the feature columns, because there is no --public "
                "table that names them. Queries and added records are put into that order by name."
            )
        return extractor


@dataclass(frozen=True, slots=True)
class FeatureOptions(ExtractorOptions):
    """Options that select and configure the feature extractor of a store."""

    components: Annotated[
        int | None, Option(help="Map vectors to this size, by a map learnt from public rows.")
    ] = None
    power: Annotated[float, Option(help="Exponent of the whitening: 0 none, 1 full.")] = 0.5

    def fit_extractor(
        self,
        reference: ReferenceOptions,
        unfitted_extractor: StoreExtractor,
        label_column: str | None = None,
        subject_column: str | None = None,
    ) -> tuple[StoreExtractor, AnyArray | None, PublicLabels | None]:
        """Fit the dimension reduction to reference rows; return extractor, features and labels.

        Features (m, d) and labels of the rows are None where there are none. Warns about unsuitable
        rows. `reference`: the options that name or generate them. `unfitted_extractor`: extractor
        of the features before the reduction.
        """
        rows, labels = reference.read_rows(unfitted_extractor, label_column, subject_column)
        public = reference.public
        with (
            nullcontext() if public is None else input_files.add_file_to_errors(public, public=True)
        ):
            if rows is None:
                if self.components:
                    raise InvalidInput(
                        "The 'components' option needs public rows to learn the map from."
                    )
                return unfitted_extractor, None, labels
            if self.components:
                extractor, points = unfitted_extractor.fit_public_map(
                    rows, self.components, self.power
                )
            else:
                extractor, points = unfitted_extractor, unfitted_extractor.transform(rows)
        if points is not None:
            names = extractor.columns
            if extractor.public_map is not None:
                names = None  # mapped features do not come from single columns
            elif extractor.kind == "table":
                names = list(input_files.get_table_schema(extractor).feature_names)
            warn_about_reference(points, names)
        return extractor, points, labels


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """Options for public reference rows: a file, or rows generated from the schema."""

    public: Annotated[Path | None, Option(help="Public rows in the same columns.")] = None
    reference: Annotated[str | None, Option(help="from-schema generates public rows.")] = None

    def check(self, features: str, data: Path | None = None) -> None:
        """Raise InvalidInput if the options contradict each other, `features` or `data`.

        `features`: value of --features, which must be "table" for rows from a schema. `data`: the
        file of private records, which must not be the public file.
        """
        if self.public is not None and self.reference is not None:
            raise InvalidInput("Give --public or --reference, but not both.")
        if self.reference not in (None, FROM_SCHEMA):
            raise InvalidInput(f"The 'reference' option must be {FROM_SCHEMA}.")
        if self.reference is not None and features != "table":
            raise InvalidInput(
                "The 'reference' option needs --features table, whose schema it uses."
            )
        files = [path for path in (self.public, data) if path is not None and path.exists()]
        if len(files) == 2 and files[0].samefile(files[1]):
            raise InvalidInput(
                "The 'public' option must not name the private records, because public rows are "
                "not protected. Use rows from another source."
            )

    def read_rows(
        self,
        extractor: StoreExtractor,
        label_column: str | None = None,
        subject_column: str | None = None,
    ) -> tuple[Any, PublicLabels | None]:
        """Return the raw public rows, read or generated, and their labels; each None if not given.

        Rows without a label or an id are among the rows; a warning states their number.
        `extractor` names the columns to read, or has the schema that generates rows.
        """
        from vicinal.features.table_drafts import rows_from_schema

        if self.public is None:
            if self.reference is None:
                return None, None
            schema = input_files.get_table_schema(extractor)
            return rows_from_schema(schema, _N_GENERATED_ROWS), None
        dataset = input_files.read_records(self.public, extractor, public=True)
        if label_column is None:
            return dataset.features, None
        if not input_files.is_table(self.public):
            if dataset.labels is None:
                return dataset.features, None
            return dataset.features, PublicLabels.from_all_rows(dataset.labels, dataset.subjects)
        return dataset.features, self._read_labels(extractor, label_column, subject_column)

    def _read_labels(
        self, extractor: StoreExtractor, label_column: str, subject_column: str | None
    ) -> PublicLabels | None:
        """Return the labels in a public table; None if no row has one.

        Warns of rows that lack a label or an id. `extractor`: gives the format of a CSV file.
        """
        from vicinal.datasets.tables import read_label_columns

        assert self.public is not None  # noqa: S101 (narrows the type)
        with input_files.add_file_to_errors(self.public, public=True):
            table = self._read_table(self.public, extractor)
            public_labels = PublicLabels(*read_label_columns(table, label_column, subject_column))
        n_incomplete = int((~public_labels.is_complete).sum())
        if n_incomplete:
            missing = "label" if subject_column is None else "label or id"
            rows = "1 public row" if n_incomplete == 1 else f"{n_incomplete:,} public rows"
            warn_caller(f"Simulations and comparisons leave out {rows} without {missing}.")
        return public_labels if len(public_labels.labels) else None

    def public_has_column(self, name: str | None, extractor: StoreExtractor) -> bool:
        """Return whether the public file is a table with a column of this `name`.

        `extractor`: gives the format of a CSV file.
        """
        from vicinal.datasets.tables import normalize_column_name

        if name is None or self.public is None or not input_files.is_table(self.public):
            return False
        table = self._read_table(self.public, extractor)
        return normalize_column_name(name) in table.column_names

    @staticmethod
    def _read_table(path: Path, extractor: StoreExtractor) -> pa.Table:
        """Return the table in the public file `path`. `extractor`: gives the format of CSV."""
        from vicinal.datasets.tables import read_table

        return read_table(path, input_files.get_csv_form(path, extractor, public=True))


_RARE_SUFFIXES = (" is missing", "=(other)")
"""Suffixes of features that may be constant in public rows: absent and undeclared values."""


def warn_about_reference(points: FloatMatrix, names: Sequence[str] | None) -> None:
    """Warn if public `points` (m, d) are few, or a feature is constant or has most variance.

    `names` (d,): of the features; None numbers them from 1.
    """
    import numpy as np

    from vicinal.predictors.inputs import find_dominant_feature

    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        return
    names = names or [str(index) for index in range(1, rows.shape[1] + 1)]
    if len(rows) < _MIN_REFERENCE_ROWS:
        warn_caller(
            f"There are only {len(rows)} public rows. With fewer than {_MIN_REFERENCE_ROWS}, "
            "neighbourhoods are guesses: give some hundreds."
        )
    constant = [names[index] for index in np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()]
    constant = [name for name in constant if not name.endswith(_RARE_SUFFIXES)]
    if constant and len(rows) > 1:
        ellipsis = " and more" if len(constant) > _MAX_NAMES_SHOWN else ""
        warn_caller(
            "These features have the same value in all public rows, so they are useless: "
            f"{', '.join(constant[:_MAX_NAMES_SHOWN])}{ellipsis}. Check that public rows look like "
            "the records."
        )
    dominant = find_dominant_feature(rows)
    if dominant is not None:
        index, variance_share = dominant
        warn_caller(
            f"Feature {names[index]} has {variance_share:.0%} of the variance of the public rows, "
            "so it alone decides which records are near. Use --features table with a schema, which "
            "standardises columns."
        )
