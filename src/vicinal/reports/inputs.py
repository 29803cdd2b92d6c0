"""From data sets to benchmarks: features of every record, extracted once."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.datasets import Dataset
from vicinal.errors import InvalidInput
from vicinal.features import HOGFeatures, SentenceFeatures
from vicinal.reports.experiments import Benchmark
from vicinal.reports.steps import Begin

_MANY = 2048
"""From this many images on, starting other processes pays."""

Vectors = npt.NDArray[np.float32]


def image_benchmark(dataset: Dataset, classes: Sequence[Any], begin: Begin) -> Benchmark:
    """Return histograms of oriented gradients of a training and a test part.

    Raises
    ------
    InvalidInput
        If there is no test part, or if a part has no labels.
    """
    records, test = dataset.split()
    step = begin("HOG features", len(records) + len(test))

    def features(part: Dataset) -> Vectors:
        extractor = HOGFeatures(n_jobs=-1 if len(part) >= _MANY else None)
        vectors: Vectors = extractor.transform(np.asarray(part.features), progress=step)
        return vectors

    return Benchmark(
        classes, features(records), labels_of(records), features(test), labels_of(test)
    )


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


def labels_of(dataset: Dataset) -> npt.NDArray[Any]:
    """Return the labels of a data set that must have them."""
    if dataset.labels is None:
        raise InvalidInput("The data must have labels, in the training and in the test part.")
    return dataset.labels


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
