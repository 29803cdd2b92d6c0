"""Long work reports its progress to the display of its context."""

import numpy as np

from vicinal.progress import show_progress
from vicinal.store import StoreExtractor


def test_making_features_is_counted_where_progress_is_shown():
    steps = []

    def begin(name, size):
        assert (name, size) == ("features", 3)
        return steps.append

    images = np.zeros((3, 28, 28), np.uint8)
    extractor = StoreExtractor("hog")
    with show_progress(begin):
        features = extractor.transform(images)
    assert sum(steps) == 3
    assert (features == extractor.transform(images)).all()
