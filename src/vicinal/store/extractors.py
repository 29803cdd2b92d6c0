"""What turns raw records and queries into features: fixed, or learnt from public data only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.features import HOGFeatures, PublicMap, SentenceFeatures

KINDS: dict[str, Callable[..., Any] | None] = {
    "columns": None,
    "hog": HOGFeatures,
    "text": SentenceFeatures,
}
"""Extractors by name; "columns" takes numbers as they are."""

_MAP = "map.npz"


@dataclass(frozen=True)
class Extractor:
    """A fixed extractor, then perhaps a map learnt from public rows. All of it is public.

    Attributes
    ----------
    kind : {"columns", "hog", "text"}
        How raw records become numbers.
    options : dict
        Parameters of the extractor's class.
    public_map : PublicMap or None
        Applied to the numbers.
    columns : list of str or None
        Names of the columns of a file that raw records are read from, for whoever reads files.
    """

    kind: str = "columns"
    options: dict[str, Any] = field(default_factory=dict)
    public_map: PublicMap | None = None
    columns: list[str] | None = None

    def __post_init__(self) -> None:
        """Refuse kinds that there are not."""
        checks.choice("features", self.kind, tuple(KINDS))

    def fitted(self, raw: Any, n_components: int) -> tuple[Self, npt.NDArray[Any]]:
        """Return an extractor with a map learnt from public raw rows, and their features."""
        numbers = self._numbers(raw)
        components = min(n_components, *np.shape(numbers))
        public_map = PublicMap(n_components=components).fit(numbers)
        return replace(self, public_map=public_map), public_map.transform(numbers)

    def transform(self, raw: Any) -> Any:
        """Return features (n, d) of raw rows; row i depends on raw row i alone."""
        numbers = self._numbers(raw)
        return numbers if self.public_map is None else self.public_map.transform(numbers)

    def spec(self) -> dict[str, Any]:
        """Return kind and options, as JSON has them."""
        plain: dict[str, Any] = json.loads(json.dumps(self.options))
        mapped = self.public_map is not None
        return {"kind": self.kind, "options": plain, "mapped": mapped, "columns": self.columns}

    def save_map(self, folder: Path) -> None:
        """Write the map into `folder`, if there is one."""
        if self.public_map is not None:
            self.public_map.save(folder / _MAP)

    @classmethod
    def load(cls, spec: dict[str, Any], folder: Path) -> Self:
        """Return the extractor of a specification, its map read from `folder`."""
        public_map = PublicMap.load(folder / _MAP) if spec["mapped"] else None
        return cls(spec["kind"], spec["options"], public_map, spec["columns"])

    def _numbers(self, raw: Any) -> Any:
        extractor = KINDS[self.kind]
        return raw if extractor is None else extractor(**self.options).transform(raw)
