"""Target vectors of label sets: their lengths must not exceed 1."""

import numpy as np
import pytest

from vicinal.targets.label_sets import LabelSets


@pytest.mark.parametrize("tau", [None, 1.0, 2.5])
def test_vectors_of_label_sets_are_short_enough(tau):
    label_sets = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=bool)
    target = LabelSets.from_values({"labels": list("abcd"), "tau": tau})
    lengths = np.linalg.norm(target.encode(label_sets, 4).to_dense(), axis=1)
    assert (lengths <= 1).all()
    assert lengths[-1] == pytest.approx(1, abs=1e-6)
