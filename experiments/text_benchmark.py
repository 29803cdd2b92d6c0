"""Texts as a benchmark: sentence embeddings of every record, computed once."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal._progress import Begin
from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput
from vicinal.features import SentenceFeatures
from vicinal.reports._trials import Benchmark, labels_of

Vectors = npt.NDArray[np.float32]


def text_benchmark(
    paths: tuple[Path, Path],
    datasets: tuple[Dataset, Dataset],
    classes: Sequence[Any],
    cache: Path,
    begin: Begin,
) -> Benchmark:
    """Return sentence embeddings of a training and a test file, each computed once.

    Embeddings lie in the folder `cache` under a name that holds the file's hash; they are as
    private as the texts.
    """
    records, test = (
        _embeddings(path, dataset, cache, begin)
        for path, dataset in zip(paths, datasets, strict=True)
    )
    return Benchmark(classes, records, labels_of(datasets[0]), test, labels_of(datasets[1]))


def _embeddings(path: Path, dataset: Dataset, cache: Path, begin: Begin) -> Vectors:
    extractor = SentenceFeatures()
    digest = hashlib.sha256(extractor.model.encode() + path.read_bytes()).hexdigest()
    stored = cache / f"embeddings-{digest[:16]}.npz"
    if stored.is_file():
        return _stored(stored, len(dataset))
    step = begin(f"embeddings of {path.name}", len(dataset))
    vectors: Vectors = extractor.transform(dataset.features, progress=step)
    unfinished = stored.with_suffix(".part.npz")
    np.savez(unfinished, features=vectors)
    unfinished.replace(stored)
    return vectors


def _stored(path: Path, size: int) -> Vectors:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = file["features"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        vectors = None
    if vectors is None or len(vectors) != size:
        raise InvalidInput(f"{path} holds no embeddings of this file. Delete it to start again.")
    return np.asarray(vectors, dtype=np.float32)
