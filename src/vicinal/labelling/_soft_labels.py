"""What released answers say of all public examples: a smooth model beside the student's network.

A network that sees a thousand answers, the surest, has weak opinions of classes that overlap; it
then confirms its own mistakes on the examples that nobody answered. Kernel ridge regression on the
round's features (:mod:`vicinal.predictors.ind_knn._public_model`) knows less of easy classes and
more of those. It sees released answers only, all of them, and so costs nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.predictors.ind_knn._public_model import PublicModel
from vicinal.predictors.ind_knn._reference_neighborhoods import ReferenceNeighborhoods

_CHUNK = 4096
"""Examples at a time, to bound memory."""


def soft_labels(
    features: npt.NDArray[np.floating],
    rows: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    n_classes: int,
) -> npt.NDArray[np.float32]:
    """Return how likely every class is for all public examples, float32 (m, c).

    Parameters
    ----------
    features : array (m, d)
        Of all public examples.
    rows, labels : int64 (a,)
        Which of them were answered, and the positions of the answers; at least one.
    n_classes : int
        c.
    """
    exact = np.asarray(features, dtype=np.float64)
    places = ReferenceNeighborhoods(exact)
    model = PublicModel(n_classes).fit(places.locate(exact[rows]), labels)
    parts = [
        model.chances(places.locate(exact[at : at + _CHUNK])) for at in range(0, len(exact), _CHUNK)
    ]
    return np.concatenate(parts).astype(np.float32)
