"""Options that say what makes the vectors of a store, and where its public reference comes from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from vicinal.cli.records import form_of, naming, read_records
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray, FloatMatrix
    from vicinal.store.store_schema import StoreExtractor

FROM_SCHEMA = "from-schema"

FEW_ROWS = 50
"""Fewer reference rows place a neighbourhood's border too roughly to be of use."""

MADE_UP_ROWS = 2000

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """What makes the vectors of a store."""

    columns: Annotated[
        list[str] | None,
        Option(
            help="Feature columns, separated by commas; or repeat the option, for each column "
            "once. Default: all others."
        ),
    ] = None
    schema: Annotated[
        Path | None, Option(help="Public schema of the table, for --features table.")
    ] = None
    features: Annotated[
        str, Option(help="How rows become vectors: columns, table, hog, image or text.")
    ] = "columns"
    model: Annotated[str | None, Option(help="Folder of a public model for text.")] = None
    components: Annotated[
        int | None,
        Option(
            help="Reduce vectors to this size, by a map learnt from public rows. Default: no map."
        ),
    ] = None
    power: Annotated[float, Option(help="How far that map evens out its components, 0 to 1.")] = 0.5

    def extractor(self, public: Path | None, others: Sequence[str | None]) -> StoreExtractor:
        """Return the extractor; `others` are the columns that hold no features.

        It knows its columns by name, from the public file if not from options. The private file's
        own header is never taken: where there is none, it is somebody's record.
        """
        from vicinal.datasets.tables import column_name, read_table
        from vicinal.features.table_schema import TableSchema
        from vicinal.parameters import listed_names
        from vicinal.store.store_schema import StoreExtractor

        options: dict[str, Any] = {}
        if self.model is not None:
            options["model"] = self.model
        if self.schema is not None:
            schema = TableSchema.load(self.schema).usable()
            schema.refuse(others, "labels or subjects")
            options["schema"] = schema.to_dict()
        columns = [column_name(name) for name in listed_names(self.columns or [])] or None
        no_features = {column_name(name) for name in others if name is not None}
        named = public is not None and not public.is_dir() and public.suffix != ".npz"
        if columns is None and self.features == "columns" and public is not None and named:
            names = read_table(public).column_names
            columns = [name for name in names if name not in no_features]
        return StoreExtractor(self.features, options, None, columns)

    def reference_points(
        self, rows: Any, extractor: StoreExtractor
    ) -> tuple[StoreExtractor, AnyArray | None]:
        """Return the extractor, with a map of public rows if one is wanted, and their features."""
        components = self.components
        if rows is None:
            if components:
                raise InvalidInput(
                    "The 'components' option needs public rows to learn the map from."
                )
            return extractor, None
        if not components:
            return extractor, extractor.transform(rows)
        return extractor.fitted(rows, components, self.power)

    def read(
        self, reference: ReferenceOptions, plain: StoreExtractor, label: str | None = None
    ) -> tuple[StoreExtractor, AnyArray | None, AnyArray | None]:
        """Return the extractor, the public reference's features, and labels if there are any.

        Warns of a reference that is of little use.
        """
        rows, labels = reference.rows(plain, label)
        with nullcontext() if reference.public is None else naming(reference.public, public=True):
            extractor, points = self.reference_points(rows, plain)
        if points is not None:
            warn_about_reference(points, _feature_names(extractor))
        return extractor, points, labels


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """Where the public reference comes from: a file, or rows made up from the schema."""

    public: Annotated[
        Path | None, Option(help="Public rows in the same columns; labels are not needed.")
    ] = None
    reference: Annotated[
        str | None, Option(help="from-schema makes up public rows, if you have none.")
    ] = None

    def check(self, kind: str, data: Path | None = None) -> None:
        """Raise InvalidInput if the reference is the private file `data`, or cannot be made."""
        public, reference = self.public, self.reference
        if public is not None and reference is not None:
            raise InvalidInput("Give --public or --reference, but not both.")
        if reference not in (None, FROM_SCHEMA):
            raise InvalidInput(f"The 'reference' option must be {FROM_SCHEMA}.")
        if reference is not None and kind != "table":
            raise InvalidInput(
                "The 'reference' option needs --features table, whose schema it uses."
            )
        places = [place for place in (public, data) if place is not None and place.exists()]
        if len(places) == 2 and places[0].samefile(places[1]):
            raise InvalidInput(
                "The 'public' option must not name the private records, because public rows are "
                "not protected. Use rows from another source, or --reference from-schema."
            )

    def rows(
        self, extractor: StoreExtractor, label: str | None = None
    ) -> tuple[Any, AnyArray | None]:
        """Return raw public rows, or None, and their labels, if a column of theirs is given."""
        from vicinal.features.table_drafts import rows_from_schema
        from vicinal.features.table_schema import TableSchema

        if self.public is not None:
            dataset = read_records(self.public, extractor, label, public=True)
            return dataset.features, None if label is None else dataset.labels
        if self.reference is None:
            return None, None
        schema = TableSchema.from_dict(extractor.options["schema"])
        return rows_from_schema(schema, MADE_UP_ROWS), None

    def has_column(self, name: str | None, extractor: StoreExtractor) -> bool:
        """Return whether the public table has a column of this name."""
        from vicinal.datasets.tables import column_name, read_table

        public = self.public
        if name is None or public is None or public.is_dir() or public.suffix == ".npz":
            return False
        table = read_table(public, form_of(public, extractor, public=True))
        return column_name(name) in table.column_names


def _feature_names(extractor: StoreExtractor) -> list[str] | None:
    """Return the names of features that are columns of a file, or made of them; None otherwise."""
    from vicinal.features.table_schema import TableSchema

    if extractor.public_map is not None:
        return None
    if extractor.kind == "table":
        return list(TableSchema.from_dict(extractor.options["schema"]).feature_names)
    return extractor.columns


_RARE = (" is missing", "=(other)")
"""Features that a schema makes of values which public rows need not have."""


def warn_about_reference(points: FloatMatrix, names: Sequence[str] | None) -> None:
    """Warn of few rows, constant features, and one feature that swamps the others.

    Features without names are numbered from 1.
    """
    import numpy as np

    from vicinal.predictors.inputs import swamping_feature

    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        return
    names = names or [str(i) for i in range(1, rows.shape[1] + 1)]
    if len(rows) < FEW_ROWS:
        _warn(
            f"There are only {len(rows)} public rows. With fewer than {FEW_ROWS}, neighbourhoods "
            "are guesses: give some hundreds."
        )
    constant = [names[i] for i in np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()]
    constant = [name for name in constant if not name.endswith(_RARE)]
    if constant and len(rows) > 1:
        more = " and others" if len(constant) > _SHOWN else ""
        _warn(
            "These features have the same value in all public rows, so they are useless: "
            f"{', '.join(constant[:_SHOWN])}{more}. Check that public rows look like the records."
        )
    if (swamping := swamping_feature(rows)) is not None:
        _warn(
            f"Feature {names[swamping[0]]} has {swamping[1]:.0%} of the variance of the public "
            "rows, so it alone decides which records are near. Use --features table with a "
            "schema, which standardises columns."
        )


def _warn(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=3)
