"""Class probabilities from noisy votes: post-processing, which costs nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr

from vicinal import _checks


def expected_vote_shares(
    votes: npt.ArrayLike, noise: float | npt.ArrayLike
) -> npt.NDArray[np.float64]:
    r"""Return the share of the votes that each class is expected to have, (q, c); rows sum to 1.

    True votes are not negative. Before anything is known each class's are taken to be anything
    above zero, equally likely; given a noisy vote v of noise s they follow a normal law cut off at
    zero, whose mean is v + s phi(v / s) / Phi(v / s). The shares are those of these means: votes
    far above the noise keep their proportions, and pure noise gives nearly equal shares.

    Parameters
    ----------
    votes : float (q, c)
        As released; a row of NaN stays one.
    noise : float or float (q,)
        Standard deviation of the noise in each vote, above 0.
    """
    noisy = np.asarray(votes, dtype=np.float64)
    spread = np.asarray(noise, dtype=np.float64)
    for scale in np.unique(spread):
        _checks.real("noise", float(scale), above=0)
    z = noisy / spread.reshape(-1, 1)
    means = z + np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    # Far below zero the difference of large numbers loses its digits; the series has them.
    deep = np.maximum(-z, 50.0)
    means = np.where(z < -50, 1 / deep - 2 / deep**3 + 10 / deep**5, means)
    return np.asarray(means / means.sum(axis=1, keepdims=True))


def share_errors(votes: npt.ArrayLike, noise: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the standard errors of shares, (q, c), to first order in the noise; at most 1.

    The noise on a class moves its share by (1 - share) / total, that on the others by -share /
    total each.

    Parameters
    ----------
    votes : float (q, c)
        As released.
    noise : float (q,)
        Standard deviation of the noise in each vote, above 0.
    """
    noisy, spread = np.asarray(votes, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    shares = expected_vote_shares(noisy, spread)
    total = np.maximum(noisy.sum(axis=1), spread)[:, None]
    moved = np.sqrt((1 - shares) ** 2 + (noisy.shape[1] - 1) * shares**2)
    return np.asarray(np.minimum(spread[:, None] * moved / total, 1.0))
