"""Gradients rounded to 8 bits: the distribution of Definition 5 of LWX23."""

from __future__ import annotations

import numpy as np
from scipy.stats import laplace, norm

from vicinal import _checks
from vicinal.smoothed._intervals import Array

LEVELS = range(-127, 129)
"""The levels i; a gradient in ((i - 1) / 256, i / 256] is written as i."""

_LAWS = {"gaussian": norm, "laplace": laplace}


def gradient_law(kind: str, mean: float = 0.0, scale: float = 0.12) -> Array:
    """Return the probabilities of the 256 levels, float64 (256,).

    p(i) is the mass of ((i - 1) / 256, i / 256] over that of (-1/2, 1/2]: gradients outside are
    drawn again.

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
        Family of the gradients before they are rounded.
    mean : float
        Their centre.
    scale : float
        Standard deviation of the Gaussian, or scale of the Laplace distribution, > 0.
    """
    family = _LAWS[_checks.choice("kind", kind, tuple(_LAWS))]
    centre = _checks.real("mean", mean, least=-1, most=1)
    width = _checks.real("scale", scale, above=0)
    edges = np.arange(LEVELS.start - 1, LEVELS.stop) / 256
    law = np.diff(family.cdf(edges, loc=centre, scale=width))
    return np.asarray(law / law.sum())
