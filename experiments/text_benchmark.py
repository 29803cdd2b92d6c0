"""Texts as a benchmark: sentence embeddings of every record, computed once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.feature_cache import Vectors, cached
from experiments.trials import Benchmark, labels_of
from vicinal.datasets import Dataset
from vicinal.features import SentenceFeatures
from vicinal.progress import Begin


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

    def embedded() -> Vectors:
        step = begin(f"embeddings of {path.name}", len(dataset))
        vectors: Vectors = extractor.transform(dataset.features, progress=step)
        return vectors

    content = extractor.model.encode() + path.read_bytes()
    return cached(cache, "embeddings", content, len(dataset), embedded)
