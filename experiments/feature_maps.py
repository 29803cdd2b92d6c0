"""Features of images, and the public maps that suit them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.scattering import ScatteringFeatures
from experiments.feature_cache import Vectors, cached
from experiments.trials import Benchmark, labels_of
from vicinal.datasets import Dataset
from vicinal.features import HOGFeatures, ImageFeatures
from vicinal.progress import Begin

_MANY = 2048
"""From this many images on, other threads or processes pay."""

Images = npt.NDArray[Any]


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
