"""Which settings and grids the documentation's tables are made of.

Radii are plain cosine values. Where the best one lies depends on the feature map (centred
histograms of gradients lie closer together than half-whitened ones), so each map has a grid wide
enough that the best point is inside it; a table says so where it is not.
"""

from experiments.accuracy.comparison import Comparison
from experiments.accuracy.search import ParameterGrid
from experiments.trials import Setting
from vicinal.features import PublicMap

N_REFERENCE = 5000

_MULTIPLIERS = (0.1, 0.15, 0.25, 0.4, 0.6, 0.9, 1.3)


def images(runs: int) -> tuple[Comparison, ...]:
    """Return the comparisons on 60,000 private images and 10,000 public ones."""
    few = (Setting(epsilon, 1000) for epsilon in (0.5, 1.0, 2.0))
    settings = *few, Setting(0.5, 4000), Setting(1.0, 4000)
    plain = ParameterGrid((0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6), _MULTIPLIERS)
    whitened = ParameterGrid((0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5), _MULTIPLIERS)
    return _comparisons("HOG", settings, plain, whitened, runs)


def texts(runs: int) -> tuple[Comparison, ...]:
    """Return the comparisons on AG News, of whose test part 2,600 rows are left as queries."""
    settings = *(Setting(epsilon, 800) for epsilon in (0.5, 1.0, 2.0)), Setting(1.0, 2600)
    plain = ParameterGrid((0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), _MULTIPLIERS)
    whitened = ParameterGrid((0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4), _MULTIPLIERS)
    return _comparisons("sentences", settings, plain, whitened, runs)


def _comparisons(
    name: str,
    settings: tuple[Setting, ...],
    plain: ParameterGrid,
    whitened: ParameterGrid,
    runs: int,
) -> tuple[Comparison, ...]:
    maps = (
        (f"{name}, centred", PublicMap(n_components=None), plain),
        (f"{name}, half-whitened", PublicMap(), whitened),
    )
    return tuple(
        Comparison(words, public_map, settings, grid, N_REFERENCE, runs)
        for words, public_map, grid in maps
    )
