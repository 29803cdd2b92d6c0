"""Compile all compiled functions of predictions and features: `python -m vicinal.reports._compile`.

A function is compiled when it is called first, and cached on disk. The installation runs this
module, so that the first predictions need not wait. All records are synthetic.
"""

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from vicinal.errors import SmallDataWarning

# Sizes of the synthetic data: small, since compilation takes nearly all of the time.
_N_ROWS = 64
_N_FEATURES = 8
_CLASSES = range(2)
# Subject 8 has several records, and such subjects use other kernels.
_SUBJECTS = np.maximum(np.arange(_N_ROWS), 8)
_ROWS, _PUBLIC = (
    np.random.default_rng(seed).normal(size=(_N_ROWS, _N_FEATURES)).astype(np.float32)  # noqa: TID251 (no secret)
    for seed in range(2)
)
_LABELS = np.arange(_N_ROWS) % len(_CLASSES)
_PLAN: dict[str, Any] = {"epsilon": 8.0, "n_queries": _N_ROWS, "interactions": "public"}


def _fit_and_predict(estimator: Any, targets: Any, subjects: Any = _SUBJECTS) -> None:
    """Fit an `estimator` to the synthetic records, with targets (n,) or (n, c), and query it.

    `subjects` (n,): the subject of each record; None makes every record a subject of its own.
    """
    with warnings.catch_warnings():
        # The synthetic records are few on purpose, and the installation shows no warnings of them.
        warnings.simplefilter("ignore", SmallDataWarning)
        estimator.fit(_ROWS, targets, subjects, public=_PUBLIC).predict(_ROWS[:4])


def compile_hog() -> None:
    """Compile the functions of HOG features for both pixel types, uint8 and float32."""
    from vicinal.features.hog import HOGFeatures

    for dtype in (np.uint8, np.float32):
        HOGFeatures().transform(np.ones((2, 16, 16), dtype=dtype))


def compile_votes() -> None:
    """Compile Ind-KNN's search, radii, charges and noise, also as published by Zhu et al. 2023.

    Functions of tiles are called directly, because few rows are never split into tiles.
    """
    from vicinal.mechanisms.charging import compute_tile_bounds, find_differences
    from vicinal.neighbours.scan import NeighbourLists, merge_blocks
    from vicinal.predictors.ind_knn import IndKNNClassifier

    neighbours = np.arange(2, dtype=np.int32)
    compute_tile_bounds(
        NeighbourLists(np.array([0, 2]), neighbours, neighbours), _N_ROWS, n_threads=2
    )
    find_differences(np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.int64), 0)
    merge_blocks([(np.array([2]), neighbours, neighbours)] * 2, 1)
    for release, seed in (("votes", None), ("label", 0)):
        options = {**_PLAN, "release": release, "model_share": 0, "simulation_seed": seed}
        _fit_and_predict(IndKNNClassifier(_CLASSES, **options), _LABELS)
    published = IndKNNClassifier.zhu2023(
        _CLASSES, 8.0, n_queries=_N_ROWS, tau=0.3, noise_multiplier=0.5, simulation_seed=0
    )
    published.set_params(interactions="public").fit(_ROWS, _LABELS).predict(_ROWS[:4])


def compile_model() -> None:
    """Compile the functions of a private model's training and of its kernel components."""
    from vicinal.linear.kernel_map import KernelMap
    from vicinal.predictors.ind_knn import IndKNNClassifier

    KernelMap.from_public_rows(_PUBLIC, _N_FEATURES)
    _fit_and_predict(
        IndKNNClassifier(_CLASSES, model_share=0.3, simulation_seed=0, **_PLAN), _LABELS
    )


def compile_vectors() -> None:
    """Compile the functions of the regressor, with an LSH index, and of label sets."""
    from vicinal.predictors.averaging import IndKNNMultiLabelClassifier, IndKNNRegressor

    _fit_and_predict(IndKNNRegressor((0.0, 1.0), index="lsh", simulation_seed=0, **_PLAN), _LABELS)
    label_sets = np.stack([_LABELS, 1 - _LABELS], axis=1)
    options = {**_PLAN, "model_share": 0.3, "simulation_seed": 0}
    for subjects in (_SUBJECTS, None):
        _fit_and_predict(IndKNNMultiLabelClassifier(["a", "b"], **options), label_sets, subjects)


def compile_private_knn_and_noisy_sgd() -> None:
    """Fit Private-kNN and NoisySGD, to compile the search in random samples and the training."""
    from vicinal.baselines.noisy_sgd import NoisySGDClassifier
    from vicinal.predictors.private_knn import PrivateKNNClassifier

    for subjects in (_SUBJECTS, None):
        sampled = PrivateKNNClassifier(
            _CLASSES,
            n_neighbors=8,
            sampling_rate=0.5,
            sigma_votes=8.0,
            n_answers=4,
            n_queries=4,
            interactions="public",
        )
        _fit_and_predict(sampled, _LABELS, subjects)
    NoisySGDClassifier(
        _CLASSES, epsilon=8.0, n_steps=2, n_records=_N_ROWS, interactions="public"
    ).fit(_ROWS, _LABELS, public=_PUBLIC)


def compile_smoothed() -> None:
    """Compile the functions of smoothed differential privacy for all mechanisms and samplers."""
    from vicinal import smoothed

    samplers = (smoothed.FixedSize(2), smoothed.Poisson(0.5), smoothed.WithReplacement(2))
    for sampler in samplers:
        smoothed.database_delta(smoothed.Histogram(sampler), [4, 6], epsilon=1.0)
        smoothed.worst_case_delta(smoothed.Histogram(sampler), 10, epsilon=1.0)
    decision = smoothed.Decision(smoothed.Plurality(), smoothed.FixedSize(2))
    smoothed.database_delta(decision, [4, 6], epsilon=1.0)
    smoothed.adjusted_utility(decision, [4, 6], threshold=0.5)
    smoothed.database_delta(smoothed.Average(levels=[0, 1, 2], size=2), [2, 2, 2], epsilon=1.0)
    smoothed.database_delta(smoothed.KNNVotes(k=3, gamma=0.5), [0, 1, 1, 0, 1], epsilon=1.0)
    smoothed.database_delta(smoothed.RadiusVotes(gamma=0.5, classes=2), [2, 3, 4], epsilon=1.0)


def draw_sample_plots() -> None:
    """Draw two plots, because the first one on a machine searches for fonts and caches them."""
    from vicinal.reports import plots
    from vicinal.reports.outcomes import AnswerCounts

    plots.plot_accuracy_by_class({"0": AnswerCounts(2, 2)})
    plots.encode_png(np.eye(2))


STEPS = (
    compile_votes,
    compile_model,
    compile_hog,
    compile_vectors,
    compile_private_knn_and_noisy_sgd,
    compile_smoothed,
    draw_sample_plots,
)


def compile_all() -> None:
    """Compile all functions and cache the fonts, in two processes."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for future in [pool.submit(step) for step in STEPS]:
            future.result()


if __name__ == "__main__":
    compile_all()
