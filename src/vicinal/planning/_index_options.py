"""Which index neighbours are found by: its kind with its options, as a parameter says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from vicinal import _checks
from vicinal._parameters import Check, Choice
from vicinal.errors import InvalidInput
from vicinal.neighbours import ExactIndex, HyperplaneLSH, IndexFactory

EXACT = "exact"
LSH = "lsh"
CENTROIDS = "centroids"

_INDEX_OPTIONS: dict[str, tuple[str, ...]] = {
    EXACT: (),
    LSH: ("tables", "bits", "seed"),
    CENTROIDS: ("cells", "recall"),
}


@dataclass(frozen=True, slots=True)
class IndexOptions(Check):
    """The kind of an index, alone or in a mapping with its options."""

    type_name = f"{Choice(tuple(_INDEX_OPTIONS)).type_name} or mapping"
    refused: ClassVar[tuple[object, ...]] = (
        "hnsw",
        {"kind": EXACT, "bits": 8},
        {"kind": "hnsw"},
        {},
        None,
    )

    def __call__(self, name: str, value: object) -> dict[str, Any]:
        """Return kind and options, all by name; the index checks the values of options."""
        options = dict(value) if isinstance(value, Mapping) else {"kind": value}
        kind = _checks.choice(name, options.get("kind"), tuple(_INDEX_OPTIONS))
        unknown = [option for option in options if option not in ("kind", *_INDEX_OPTIONS[kind])]
        if unknown:
            raise InvalidInput(
                f"The {name!r} parameter must not have {unknown[0]!r}: for {kind!r} it takes "
                f"{', '.join(_INDEX_OPTIONS[kind]) or 'no options'}."
            )
        return options


def first_index(index: dict[str, Any]) -> IndexFactory:
    """Return what makes the index that records are put into first; centroids need the radius.

    `index` is a kind with its options, as :class:`IndexOptions` returns it.
    """
    return partial(HyperplaneLSH, **options_of(index)) if index["kind"] == LSH else ExactIndex


def options_of(index: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an index, without its kind."""
    return {name: value for name, value in index.items() if name != "kind"}
