"""Features of many records, made by all processes of a Ray engine.

Row i of the features depends on raw row i alone, so rows can be cut anywhere. Raw rows and features
travel through Ray, whose memory and network must be as closed as the disks. Plain tasks do it, not
Ray Data, which writes names of files to logs and quotes them in errors.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal import errors
from vicinal.distributed._ray_cluster import DONE, RayCluster, run_quietly
from vicinal.errors import StorageFailed
from vicinal.store import StoreExtractor

_ROWS = 256
"""Rows of a task: enough that sending them costs little, next to a network."""

_AHEAD = 4
"""Tasks under way for each core; the others wait here."""


@dataclass(frozen=True)
class SpreadExtractor(StoreExtractor):
    """An extractor whose work is done on a Ray engine; what it writes down is a plain one's.

    Attributes
    ----------
    engine : RayCluster or None
        Where. A model file must have the same path on every machine.

    Examples
    --------
    >>> from vicinal.distributed import SpreadExtractor
    >>> SpreadExtractor("hog").engine is None  # without an engine, a plain extractor
    True
    """

    engine: RayCluster | None = None

    def _numbers(self, raw: Any) -> Any:
        if self.engine is None or self.kind == "columns" or len(raw) <= _ROWS:
            return super()._numbers(raw)
        plain = StoreExtractor(self.kind, self.options)
        pieces = [raw[at : at + _ROWS] for at in range(0, len(raw), _ROWS)]
        return np.concatenate(spread(self.engine, plain, pieces))


def spread(engine: RayCluster, extractor: StoreExtractor, pieces: list[Any]) -> list[np.ndarray]:
    """Return the features of pieces of raw rows, in their order.

    Raises InvalidInput if the extractor refuses rows. Raises StorageFailed if the engine does not
    do its work.
    """
    work = engine.task(_features)
    waiting: deque[Any] = deque()
    embedded: list[np.ndarray] = []
    for piece in pieces:
        if len(waiting) >= _AHEAD * engine.cores():
            embedded.append(_received(engine, waiting.popleft()))
        waiting.append(work.remote(extractor, piece))
    return embedded + [_received(engine, one) for one in waiting]


def _features(extractor: StoreExtractor, piece: Any) -> tuple[str, Any]:
    """Do one task, on some machine; nothing of what goes wrong quotes a record."""
    return run_quietly(lambda: extractor.transform(piece))


def _received(engine: RayCluster, task: Any) -> np.ndarray:
    kind, result = engine.result(task)
    if kind == DONE:
        return np.asarray(result)
    refused = getattr(errors, kind, None)
    raise (refused or StorageFailed)(result)
