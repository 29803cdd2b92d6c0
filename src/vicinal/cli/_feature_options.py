"""What makes the vectors of a new store, and where its public reference comes from, as options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._records import read_records
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray
    from vicinal.store import StoreExtractor

FROM_SCHEMA = "from-schema"

MAPPED = 100
"""Components of the map that table features go through, where the reference is large enough."""

_ROWS_PER_FEATURE = 5
"""Reference rows for each feature that a map learnt from them needs."""


@dataclass(frozen=True, slots=True)
class FeatureOptions:
    """What makes the vectors of a store."""

    columns: Annotated[
        str | None, typer.Option(help="Feature columns, comma-separated; default: all others.")
    ] = None
    schema: Annotated[
        Path | None, typer.Option(help="The table's public schema, for --features table.")
    ] = None
    features: Annotated[
        str,
        typer.Option(
            help="columns, table, hog, scattering, image, text or onnx: what makes the vectors."
        ),
    ] = "columns"
    model: Annotated[
        str | None,
        typer.Option(
            help="timm architecture, folder of a text model or minilm (without torch), or .onnx "
            "file; image without it: efficientnet-lite0. Public."
        ),
    ] = None
    weights: Annotated[Path | None, typer.Option(help="File of a timm network's weights.")] = None
    components: Annotated[
        int | None,
        typer.Option(
            help="Reduce features to so many by a map learnt from the reference; 0: none. "
            "Default: 100 for tables, else none."
        ),
    ] = None
    power: Annotated[
        float, typer.Option(help="How much of each component's strength the map takes away.")
    ] = 0.5

    def extractor(self, public: Path | None, others: Sequence[str | None]) -> StoreExtractor:
        """Return the extractor; `others` are the columns that hold no features."""
        from vicinal._parameters import listed
        from vicinal.store import StoreExtractor

        options = {
            "model": self.model,
            "weights": None if self.weights is None else str(self.weights),
            "schema": None if self.schema is None else _usable_schema(self.schema, others),
        }
        options_set = {name: value for name, value in options.items() if value is not None}
        columns = None if self.columns is None else listed(self.columns)
        plain = StoreExtractor(self.features, options_set, None, columns)
        return _with_names(plain, public, others)

    def reference_points(
        self, rows: Any, extractor: StoreExtractor
    ) -> tuple[StoreExtractor, AnyArray | None]:
        """Return the extractor, with a map learnt from public rows if wanted, and their features.

        Unless told, table features go through one if there are enough public rows to learn it.
        """
        components = self.components
        if rows is None:
            if components:
                raise InvalidInput(
                    "The 'components' option needs a reference to learn the map from."
                )
            return extractor, None
        if components is None:
            points = extractor.transform(rows)
            enough = len(points) >= _ROWS_PER_FEATURE * points.shape[1] if len(points) else False
            if extractor.kind != "table" or not enough or not points.std(axis=0).any():
                return extractor, points
            components = MAPPED
        if not components:
            return extractor, extractor.transform(rows)
        return extractor.fitted(rows, components, self.power)


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """Where the public reference comes from: a file, or rows made up from the schema."""

    public: Annotated[
        Path | None, typer.Option(help="Public, unlabelled records, in the same columns.")
    ] = None
    reference: Annotated[
        str | None,
        typer.Option(help="Without --public: from-schema, which costs nothing."),
    ] = None
    reference_rows: Annotated[
        int, typer.Option(help="Rows that --reference makes up.", min=1, max=100_000)
    ] = 2000

    def check(self, data: Path, features: str) -> None:
        """Raise InvalidInput if the reference is the private file, or cannot be made."""
        public, reference = self.public, self.reference
        if public is not None and reference is not None:
            raise InvalidInput("Give either --public or --reference.")
        if reference not in (None, FROM_SCHEMA):
            raise InvalidInput(f"The 'reference' option must be {FROM_SCHEMA}.")
        if reference is not None and features != "table":
            raise InvalidInput(
                "The 'reference' option needs --features table, whose schema it uses."
            )
        if public is not None and public.exists() and data.exists() and public.samefile(data):
            raise InvalidInput(
                "The 'public' option must name another file than 'data': the reference is not "
                "protected. Take rows from another source, or --reference from-schema."
            )

    def rows(self, extractor: StoreExtractor) -> Any:
        """Return raw public rows, or None."""
        from vicinal.features import TableSchema, rows_from_schema

        if self.public is not None:
            return read_records(self.public, extractor, None, None).features
        if self.reference is None:
            return None
        schema = TableSchema.from_dict(extractor.options["schema"])
        return rows_from_schema(schema, self.reference_rows)


def _usable_schema(path: Path, others: Sequence[str | None]) -> dict[str, Any]:
    """Return a schema as JSON has it; the columns of labels and subjects may be no features."""
    from vicinal.features import TableSchema

    schema = TableSchema.load(path).usable()
    schema.refuse(others, "labels or subjects")
    return schema.to_dict()


def _with_names(
    extractor: StoreExtractor, public: Path | None, others: Sequence[str | None]
) -> StoreExtractor:
    """Return an extractor that knows its columns by name, from the public file if not from options.

    The private file's own header is never taken: where there is none, it is somebody's record.
    """
    from vicinal.datasets import read_table

    plain = extractor.kind == "columns" and extractor.columns is None
    if not plain or public is None or not public.name.endswith((".csv", ".csv.gz", ".parquet")):
        return extractor
    names = [name for name in read_table(public).column_names if name not in others]
    return replace(extractor, columns=names)
