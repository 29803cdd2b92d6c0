"""Compile all kernels of predictions and features: `python -m vicinal.reports._compile`.

The installation runs this module, because compiled kernels are cached on disk and the first
predictions then need not wait. All records are synthetic.
"""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

# Sizes of the synthetic data: small, since compilation takes all the time.
_N_ROWS = 64
_N_FEATURES = 8
_CLASSES = range(2)
_SUBJECTS = np.maximum(np.arange(_N_ROWS), 8)  # one with several records, who need other kernels


def compile_features() -> None:
    """Compile the kernels of HOG features for both image types."""
    from vicinal.features.hog import HOGFeatures

    for dtype in (np.uint8, np.float32):
        HOGFeatures().transform(np.ones((2, 16, 16), dtype=dtype))


def compile_votes() -> None:
    """Compile the kernels of Ind-KNN's search, radii, charges and noise, for votes and labels.

    The kernels for tiles are called directly, because few rows are never split into tiles.
    """
    from vicinal.mechanisms.charging import compute_tile_bounds
    from vicinal.neighbours.scan import NeighbourLists, merge_blocks
    from vicinal.predictors.ind_knn import IndKNNClassifier

    neighbours = np.arange(2, dtype=np.int32)
    compute_tile_bounds(
        NeighbourLists(np.array([0, 2]), neighbours, neighbours), _N_ROWS, n_threads=2
    )
    merge_blocks([(np.array([2]), neighbours, neighbours)] * 2, 1)
    rows, labels = _make_records(0)
    public, _ = _make_records(1)
    for release, seed in (("votes", None), ("label", 0)):
        IndKNNClassifier(
            _CLASSES, 8.0, n_queries=_N_ROWS, release=release, model_share=0, simulation_seed=seed
        ).fit(rows, labels, _SUBJECTS, public=public).predict(rows[:4])


def compile_published() -> None:
    """Compile the kernels of the published Ind-KNN algorithm (ZZGW23)."""
    from vicinal.predictors.ind_knn import IndKNNClassifier

    rows, labels = _make_records(0)
    IndKNNClassifier.zhu2023(
        _CLASSES, 8.0, n_queries=_N_ROWS, tau=0.3, noise_multiplier=0.5, simulation_seed=0
    ).fit(rows, labels).predict(rows[:4])


def compile_model() -> None:
    """Compile the kernels of the private model and of its kernel features."""
    from vicinal.linear.kernel_map import KernelMap
    from vicinal.predictors.ind_knn import IndKNNClassifier

    rows, labels = _make_records(3)
    public, _ = _make_records(1)
    KernelMap.from_public_rows(public, _N_FEATURES)
    IndKNNClassifier(_CLASSES, 8.0, n_queries=_N_ROWS, model_share=0.3, simulation_seed=0).fit(
        rows, labels, _SUBJECTS, public=public
    ).predict(rows[:4])


def compile_private_knn() -> None:
    """Compile the kernels of Private-kNN's search in random samples, and price its releases."""
    from vicinal.predictors.private_knn import PrivateKNNClassifier

    # Other rows than in compile_votes: a process may run both, and two fits to equal rows interact.
    rows, labels = _make_records(2)
    public, _ = _make_records(1)
    PrivateKNNClassifier(
        _CLASSES, n_neighbors=8, sampling_rate=0.5, sigma_votes=8.0, n_answers=4, n_queries=4
    ).fit(rows, labels, public=public).predict(rows[:4])


def draw_report() -> None:
    """Draw a plot, because the first one on a machine searches for fonts and caches them."""
    from vicinal.reports import plots
    from vicinal.reports.outcomes import Outcome

    plots.plot_accuracy_by_class({"0": Outcome(2, 2)})
    plots.encode_image(np.eye(2))


def _make_records(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return Gaussian rows (n, d) and alternating labels (n,)."""
    rows = np.random.default_rng(seed).normal(size=(_N_ROWS, _N_FEATURES))  # noqa: TID251 (no secret)
    return rows.astype(np.float32), np.arange(_N_ROWS) % len(_CLASSES)


STEPS: tuple[Callable[[], None], ...] = (
    compile_votes,
    compile_published,
    compile_model,
    compile_features,
    compile_private_knn,
    draw_report,
)


def run_steps() -> None:
    """Run all steps in two processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(step) for step in STEPS]:
            future.result()


if __name__ == "__main__":
    run_steps()
