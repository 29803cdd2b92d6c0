"""Compile what predictions and features need: `python -m vicinal.reports._compile`.

For whoever installs: compiled code stays on disk, so that no first run waits for it. So do the
modules that a report is drawn by, and its fonts. All records here are made up.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

_RECORDS, _WIDTH, _CLASSES = 64, 8, 2


def compile_features() -> None:
    from vicinal.features.hog import HOGFeatures

    for dtype in (np.uint8, np.float32):
        images = np.ones((2, 16, 16), dtype=dtype)
        HOGFeatures().transform(images)


def compile_votes() -> None:
    """Compile integer search, radius and charges, for votes and for labels alone; and exact noise.

    One subject has several records. So few rows are never cut into tiles by themselves.
    """
    from vicinal.mechanisms.charging import tile_bounds
    from vicinal.neighbours.scan import NeighbourLists, merge_tiles
    from vicinal.predictors.ind_knn import IndKNNClassifier

    rows, labels = _made_up(0)
    public, _ = _made_up(1)
    subjects = np.maximum(np.arange(_RECORDS), 8)
    places = np.arange(2, dtype=np.int32)
    tile_bounds(NeighbourLists(np.array([0, 2]), places, places), _RECORDS, threads=2)
    merge_tiles([(np.array([2]), places, places)] * 2, 1)
    for release, seed in (("votes", None), ("label", 0)):
        IndKNNClassifier(
            range(_CLASSES), 8.0, n_queries=_RECORDS, release=release, model_share=0,
            simulation_seed=seed,
        ).fit(rows, labels, subjects, public=public).predict(rows[:4])  # fmt: skip


def compile_published() -> None:
    from vicinal.predictors.ind_knn import IndKNNClassifier

    rows, labels = _made_up(0)
    IndKNNClassifier.zhu2023(
        range(_CLASSES), 8.0, n_queries=_RECORDS, tau=0.3, noise_multiplier=0.5, simulation_seed=0
    ).fit(rows, labels).predict(rows[:4])


def compile_model() -> None:
    from vicinal.linear.kernel_map import KernelMap
    from vicinal.predictors.ind_knn import IndKNNClassifier

    rows, labels = _made_up(3)
    public, _ = _made_up(1)
    KernelMap.of(public, _WIDTH)
    IndKNNClassifier(
        range(_CLASSES), 8.0, n_queries=_RECORDS, model_share=0.3, simulation_seed=0
    ).fit(rows, labels, np.maximum(np.arange(_RECORDS), 8), public=public).predict(rows[:4])


def draw_report() -> None:
    """Draw a plot: the first looks for the fonts of the machine."""
    from vicinal.reports import plots
    from vicinal.reports.outcomes import Outcome

    plots.accuracy_by_class({"0": Outcome(2, 2)})
    plots.picture(np.eye(2))


def compile_private_knn() -> None:
    """Compile the search of a fresh sample, and what prices its releases."""
    from vicinal.predictors.private_knn import PrivateKNNClassifier

    rows, labels = _made_up(2)  # others than the votes': one process may do both
    public, _ = _made_up(1)
    PrivateKNNClassifier(
        range(_CLASSES), n_neighbors=8, sampling_rate=0.5, sigma_votes=8.0, n_answers=4, n_queries=4
    ).fit(rows, labels, public=public).predict(rows[:4])


def _made_up(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(seed).normal(size=(_RECORDS, _WIDTH))  # noqa: TID251 (no secret)
    return rows.astype(np.float32), np.arange(_RECORDS) % _CLASSES


STEPS: tuple[Callable[[], None], ...] = (
    compile_votes, compile_published, compile_model, compile_features, compile_private_knn,
    draw_report,
)  # fmt: skip


def main() -> None:
    """Take all steps, two at a time, each in a process of its own."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for done in [pool.submit(step) for step in STEPS]:
            done.result()


if __name__ == "__main__":
    main()
