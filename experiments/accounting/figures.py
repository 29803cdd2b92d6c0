"""What one noisy screening answer costs, drawn: votes, orders, noise, sampling, queries.

These follow the subjects of Figures 1 to 3 of the supplement, and of Figure 5, of Zhu, Yu,
Chandraker & Wang 2020. The supplement's axes are reconstructed: what is drawn and at which
parameters (those of Figure 5) is our choice. Data-dependent costs need votes that were never
published; they are drawn for every possible largest vote, or for the votes of :func:`margins`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from scipy.stats import beta

from vicinal.accounting import (
    Composition,
    PricedRelease,
    Screening,
    SubsampledGaussian,
    compose,
)
from vicinal.reports import figure_bytes

K, THRESHOLD, SIGMA, GAMMA, QUERIES, DELTA = 300, 210, 85.0, 0.25, 8192, 1e-5
CLASSES = 10

_ORDER = 10.0
_POINTS = 25
_EPSILON = f"epsilon at delta {DELTA:g} (Mironov 2017)"
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#59636e"


def margins(queries: int = QUERIES) -> list[int]:
    """Return largest votes of made-up queries: k/c + (k - k/c) times Beta(1, 1/2), evenly spread.

    Most pile up at full agreement, the rest spread down to a tie of all classes. No real votes.
    """
    shares = beta.ppf((np.arange(queries) + 0.5) / queries, 1.0, 0.5)
    least = K / CLASSES
    return [round(least + (K - least) * float(share)) for share in shares]


@dataclass(frozen=True)
class ScreeningAt:
    """One unsampled answer at its own largest vote `t`: a cost that is as private as the votes.

    The product has no such cost: it may not be published, decided by, or amplified by sampling.
    """

    t: int

    def rdp(self, orders: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the RDP at `orders` (m,): the largest over both signs and both directions."""
        up = (self.t - THRESHOLD) / SIGMA
        positions = np.array([up] * (self.t < K) + [-up] * (self.t > 0))
        log_q, log_miss, passed, failed = Screening(K, THRESHOLD, SIGMA).laws(positions)
        powers = np.stack([orders, 1 - orders])[:, :, None]
        logs = np.logaddexp(log_q + powers * passed, log_miss + powers * failed)
        return np.asarray(np.maximum(logs.max(axis=(0, 2)), 0) / (orders - 1))

    def pair(self) -> None:
        """Return None: there is no mechanism with this cost."""


def data_dependent(votes: list[int]) -> Composition:
    """Return what unsampled screening costs at these largest votes. Private, were they real."""
    times = Counter(votes)
    return compose(Composition.of(ScreeningAt(t), count) for t, count in times.items())


def draw_all(kind: str = "png") -> dict[str, bytes]:
    """Return every picture by name, as the bytes of a "png", "svg" or "pdf"."""
    single = {"by-votes": _by_votes, "by-order": _by_order, "by-queries": _by_queries}
    pictures = {name: _picture((draw,), kind) for name, draw in single.items()}
    return {**pictures, "by-noise-and-sampling": _picture((_by_noise, _by_sampling), kind)}


def _picture(draws: Sequence[Callable[[Axes], None]], kind: str) -> bytes:
    figure = Figure(figsize=(5.4 * len(draws), 4), layout="constrained")
    panels = figure.subplots(1, len(draws), squeeze=False)[0]
    for draw, axes in zip(draws, panels, strict=True):
        draw(axes)
        axes.grid(color="#e4e7eb")
        axes.legend(frameon=False)
    return figure_bytes(figure, kind)


def _by_votes(axes: Axes) -> None:
    """Draw the RDP of one answer against its largest vote, at one order."""
    order = np.array([_ORDER])
    votes = np.arange(0, K + 1, 3)
    costs = [float(ScreeningAt(int(t)).rdp(order)[0]) for t in votes]
    axes.plot(votes, costs, color=_BLUE, label="data-dependent (private)")
    for release, colour, name in (
        (Screening(K, THRESHOLD, SIGMA), _ORANGE, "data-independent"),
        (SubsampledGaussian(SIGMA), _GREY, "Gaussian"),
    ):
        axes.axhline(float(release.rdp(order)[0]), color=colour, label=name)
    axes.set_ylim(0, 1.4 * float(SubsampledGaussian(SIGMA).rdp(order)[0]))
    axes.axvline(THRESHOLD, color=_GREY, linestyle=":", label="threshold")
    axes.set_xlabel("largest vote t")
    axes.set_ylabel(f"Rényi divergence at order {_ORDER:g}")


def _by_order(axes: Axes) -> None:
    """Draw the RDP of one answer against the order, with and without sampling."""
    orders = np.geomspace(1.1, 300, 60)
    for name, (release, style) in _mechanisms().items():
        axes.loglog(orders, release.rdp(orders), style, label=name)
    axes.set_xlabel("order alpha")
    axes.set_ylabel("Rényi divergence of one answer")


def _by_noise(axes: Axes) -> None:
    """Draw epsilon of all queries against sigma."""
    sigmas = np.geomspace(20, 400, _POINTS)
    for name, gamma in (("no sampling", 1.0), (f"gamma {GAMMA:g}", GAMMA)):
        costs = [_epsilon(Screening(K, THRESHOLD, float(s), gamma)) for s in sigmas]
        axes.loglog(sigmas, costs, label=f"screening, {name}")
        costs = [_epsilon(SubsampledGaussian(float(s), gamma)) for s in sigmas]
        axes.loglog(sigmas, costs, "--", label=f"Gaussian, {name}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("sigma, in votes")
    axes.set_ylabel(_EPSILON)


def _by_sampling(axes: Axes) -> None:
    """Draw epsilon of all queries against gamma."""
    rates = np.geomspace(0.01, 1, _POINTS)
    exact = [_epsilon(Screening(K, THRESHOLD, SIGMA, float(g))) for g in rates]
    gaussian = [_epsilon(SubsampledGaussian(SIGMA, float(g))) for g in rates]
    axes.loglog(rates, exact, color=_BLUE, label="screening")
    axes.loglog(rates, gaussian, "--", color=_ORANGE, label="Gaussian")
    made_up = data_dependent(margins()).to_epsilon(DELTA, "rdp_mironov")
    axes.axhline(made_up, color=_GREY, linestyle=":", label="data-dependent, made-up votes")
    axes.set_xlabel("sampling rate gamma")
    axes.set_ylabel(_EPSILON)


def _by_queries(axes: Axes) -> None:
    """Draw epsilon against the number of queries, as Figure 5 does."""
    counts = np.unique(np.geomspace(1, QUERIES, _POINTS).astype(int))
    for name, (release, style) in _mechanisms().items():
        axes.plot(counts, [_epsilon(release, int(n)) for n in counts], style, label=name)
    costs = [data_dependent(margins(int(n))).to_epsilon(DELTA, "rdp_mironov") for n in counts]
    axes.plot(counts, costs, ":", color=_BLUE, label="data-dependent, made-up votes")
    axes.set_xlabel("queries screened")
    axes.set_ylabel(_EPSILON)


def _mechanisms() -> dict[str, tuple[PricedRelease, str]]:
    return {
        "Gaussian": (SubsampledGaussian(SIGMA), "-g"),
        "screening": (Screening(K, THRESHOLD, SIGMA), "-b"),
        "subsampled Gaussian": (SubsampledGaussian(SIGMA, GAMMA), "--k"),
        "subsampled screening": (Screening(K, THRESHOLD, SIGMA, GAMMA), "-r"),
    }


def _epsilon(release: PricedRelease, count: int = QUERIES) -> float:
    return Composition.of(release, count).to_epsilon(DELTA, "rdp_mironov")
