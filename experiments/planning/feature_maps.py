"""What public feature maps buy: the same plans on several maps, nothing else different.

Simulated on public data, like all comparisons; nothing is tuned to a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.feature_cache import Vectors, cached
from experiments.spread import mean_and_spread
from experiments.trials import Benchmark, Setting, fitted, labels_of, split, yardstick_outcome
from vicinal.baselines import NoisySGDClassifier
from vicinal.datasets import Dataset
from vicinal.features import HOGFeatures, ImageFeatures, PublicMap, ScatteringFeatures
from vicinal.reports import Begin, Step, Trial

N_REFERENCE = 5000

WAYS: dict[str, dict[str, Any]] = {"votes": {}, "labels alone": {"release": "label"}}

SETTINGS = tuple(Setting(epsilon, n) for n in (1000, 4000) for epsilon in (0.5, 1.0))

_MANY = 2048
"""From this many images on, other threads or processes pay."""

PLAIN = "without privacy"

TRAINED = "NoisySGD, for any number"

Images = npt.NDArray[Any]
_Key = tuple[str, float | None, int]


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A fixed extractor of image features, and how the map learnt from public rows is set."""

    name: str
    extractor: type[HOGFeatures] | type[ScatteringFeatures] | type[ImageFeatures]
    options: dict[str, Any] = field(default_factory=dict)
    learnt: dict[str, Any] = field(default_factory=dict)

    @property
    def extraction(self) -> tuple[str, str]:
        """What tells the extractor and its options from others."""
        return self.extractor.__name__, repr(self.options)

    def benchmark(
        self, dataset: Dataset, classes: Sequence[Any], begin: Begin, cache: Path | None = None
    ) -> Benchmark:
        """Return the features of a training and a test part, which the folder `cache` keeps."""
        parts = dataset.split()
        labels = labels_of(parts[0]), labels_of(parts[1])
        first, second = (self._features(np.asarray(p.features), begin, cache) for p in parts)
        return Benchmark(classes, first, labels[0], second, labels[1], self.learnt)

    def _features(self, images: Images, begin: Begin, cache: Path | None) -> Vectors:
        def made() -> Vectors:
            step = begin(f"features: {self.name}", len(images))
            extractor = self.extractor(**self.options)
            if len(images) >= _MANY and "n_jobs" in extractor.get_params():
                extractor.set_params(n_jobs=-1)  # features do not depend on it
            vectors: Vectors = extractor.transform(images, progress=step)
            return vectors

        if cache is None:
            return made()
        content = repr((self.extraction, images.dtype, images.shape)).encode() + images.tobytes()
        return cached(cache, "features", content, len(images), made)


HOG = FeatureMap("HOG, half-whitened, 100", HOGFeatures)
SCATTERING = FeatureMap(
    "scattering, whitened, 400", ScatteringFeatures, learnt={"n_components": 400, "power": 1.0}
)
LITE0 = FeatureMap(
    "EfficientNet-Lite0, half-whitened, 200", ImageFeatures, learnt={"n_components": 200}
)
MAPS = (
    HOG,
    FeatureMap("HOG, power .7, 300", HOGFeatures, learnt={"n_components": 300, "power": 0.7}),
    SCATTERING,
)


@dataclass(frozen=True, slots=True)
class MapRow:
    """One map, one way of answering and one setting, over all runs.

    Attributes
    ----------
    features, way : str
        Name of the map; what leaves, "without privacy" for a majority of neighbours, or NoisySGD.
    epsilon : float or None
        None without privacy.
    n_queries : int
        Queries planned and asked.
    accuracies : tuple of float
        One for every run.
    """

    features: str
    way: str
    epsilon: float | None
    n_queries: int
    accuracies: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values with mean and spread."""
        mean, spread = mean_and_spread(self.accuracies)
        return {**asdict(self), "accuracy_mean": mean, "accuracy_spread": spread}


def measure(
    dataset: Dataset,
    classes: Sequence[Any],
    runs: int,
    begin: Begin,
    maps: Sequence[FeatureMap] = MAPS,
    settings: Sequence[Setting] = SETTINGS,
    n_reference: int = N_REFERENCE,
) -> list[MapRow]:
    """Run every way on every map, on `runs` public splits.

    Raises
    ------
    InvalidInput
        If there is no test part, a part has no labels, or there are too few test rows.
    """
    most = max(setting.n_queries for setting in settings)
    trained = len({setting.epsilon for setting in settings})
    answered = (1 + trained) * most + len(WAYS) * sum(setting.n_queries for setting in settings)
    rows = []
    for _, group in groupby(maps, key=lambda feature_map: feature_map.extraction):
        alike = list(group)
        benchmark = alike[0].benchmark(dataset, classes, begin)
        for feature_map in alike:
            step = begin(feature_map.name, runs * answered)
            found: dict[_Key, list[float]] = {}
            for run in range(runs):
                parts = split(len(benchmark.test), n_reference, most, run)
                trial = benchmark.trial(PublicMap(**feature_map.learnt), parts)
                for key, accuracy in _run(trial, settings, run, step).items():
                    found.setdefault(key, []).append(accuracy)
            rows += [MapRow(feature_map.name, *key, tuple(found[key])) for key in found]
    return rows


def _run(trial: Trial, settings: Sequence[Setting], seed: int, step: Step) -> dict[_Key, float]:
    """Return the accuracy of every way in every setting of one split."""
    plain = yardstick_outcome(trial)
    found: dict[_Key, float] = {(PLAIN, None, len(trial.truth)): plain.accuracy}
    step(len(trial.truth))
    for epsilon in sorted({setting.epsilon for setting in settings}):
        found[TRAINED, epsilon, len(trial.truth)] = _trained(trial, epsilon, seed)
        step(len(trial.truth))
    for setting in settings:
        some = trial.first(setting.n_queries)
        for way in WAYS:
            found[way, setting.epsilon, setting.n_queries] = _accuracy(some, setting, way, seed)
            step(setting.n_queries)
    return found


def _accuracy(trial: Trial, setting: Setting, way: str, seed: int) -> float:
    classifier = fitted(trial, setting, seed, **WAYS[way])
    return float((classifier.predict(trial.queries) == trial.truth).mean())


def _trained(trial: Trial, epsilon: float, seed: int) -> float:
    """Return what a linear model learns of the same features for the same epsilon."""
    size = len(trial.records)
    model = NoisySGDClassifier(trial.classes, epsilon, n_records=size, simulation_seed=seed)
    model.fit(trial.records, trial.labels)
    return float((model.predict(trial.queries) == trial.truth).mean())


def text_table(rows: Sequence[MapRow]) -> str:
    """Return rows as plain text, with the spread of a single run."""
    lines = [f"{'features':28}{'way':30}{'queries':>8}{'epsilon':>9}{'accuracy':>18}"]
    for row in rows:
        mean, spread = mean_and_spread(row.accuracies)
        epsilon = "" if row.epsilon is None else f"{row.epsilon:g}"
        lines.append(
            f"{row.features:28}{row.way:30}{row.n_queries:8,}{epsilon:>9}"
            f"{f'{mean:.4f} ± {spread:.4f}':>18}"
        )
    return "\n".join(lines)
