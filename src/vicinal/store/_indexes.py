"""The index that a store's records lie in: a public fact, the same for all audiences."""

from __future__ import annotations

import io
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._arrays import FloatMatrix
from vicinal.errors import StorageFailed, StoreDamaged
from vicinal.ledger._files import guarded, replace_file
from vicinal.neighbours import IndexFactory, Kernel, PublicCentroids, Radius, Reference, learn_cells
from vicinal.neighbours._centroids import CentroidCells
from vicinal.predictors.ind_knn._index_options import CENTROIDS, EXACT, first_index, options_of

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


def plain_index() -> dict[str, Any]:
    """Return the index of stores that were made before there were others."""
    return {"kind": EXACT}


def _load(path: Path) -> CentroidCells:
    try:
        with guarded(path), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            factor, margin = stored["numbers"].tolist()
            return CentroidCells(stored["centroids"], stored["offsets"], int(factor), margin)
    except (ValueError, KeyError, EOFError, zipfile.BadZipFile, StorageFailed):
        raise StoreDamaged(f"{path} is damaged. Restore a backup.") from None
