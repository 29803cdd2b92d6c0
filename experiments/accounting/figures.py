"""What one noisy screening answer costs, drawn: orders, noise, sampling, queries.

These follow the subjects of Figures 1 to 3 of the supplement, and of Figure 5, of Zhu, Yu,
Chandraker & Wang 2020. The supplement's axes are reconstructed: what is drawn and at which
parameters (those of Figure 5) is our choice. Data-dependent costs are not drawn: they need votes
that were never published.
"""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from vicinal.accounting.composition import Composition, PricedRelease
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.accounting.screening import Screening
from vicinal.reports.plots import encode_figure

K, THRESHOLD, SIGMA, GAMMA, QUERIES, DELTA = 300, 210, 85.0, 0.25, 8192, 1e-5

_POINTS = 25
_EPSILON = f"epsilon at delta {DELTA:g} (Mironov 2017)"
_BLUE, _ORANGE = "#0072b2", "#d55e00"


def draw_all(kind: str = "png") -> dict[str, bytes]:
    """Return every picture by name, as the bytes of a "png", "svg" or "pdf"."""
    single = {"by-order": _by_order, "by-queries": _by_queries}
    pictures = {name: _picture((draw,), kind) for name, draw in single.items()}
    return {**pictures, "by-noise-and-sampling": _picture((_by_noise, _by_sampling), kind)}


def _picture(draws: Sequence[Callable[[Axes], None]], kind: str) -> bytes:
    figure = Figure(figsize=(5.4 * len(draws), 4), layout="constrained")
    panels = figure.subplots(1, len(draws), squeeze=False)[0]
    for draw, axes in zip(draws, panels, strict=True):
        draw(axes)
        axes.grid(color="#e4e7eb")
        axes.legend(frameon=False)
    return encode_figure(figure, kind)


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
    axes.set_xlabel("sampling rate gamma")
    axes.set_ylabel(_EPSILON)


def _by_queries(axes: Axes) -> None:
    """Draw epsilon against the number of queries, as Figure 5 does."""
    counts = np.unique(np.geomspace(1, QUERIES, _POINTS).astype(int))
    for name, (release, style) in _mechanisms().items():
        axes.plot(counts, [_epsilon(release, int(n)) for n in counts], style, label=name)
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
    return Composition.from_release(release, count).to_epsilon(DELTA, "rdp_mironov")
