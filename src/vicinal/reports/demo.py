"""The command ``vicinal demo``: a public data set whose training part is treated as private.

Answers have real noise, not simulated noise from a seed. `begin` starts a progress bar, given its
name and number of steps.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, FloatMatrix, Floats, Indices
from vicinal.datasets.dataset import Dataset
from vicinal.errors import InvalidInput
from vicinal.features.hog import HOGFeatures
from vicinal.features.public_map import PublicMap
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.progress import Begin, show_progress
from vicinal.reports import outcomes, text
from vicinal.reports.outcomes import AccuracyByClass, AnswerCounts


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One train-test split with mapped features; records and labels are treated as private."""

    classes: Sequence[Any]  # all class names
    records: FloatMatrix  # (n, d)
    labels: AnyArray  # of the records, (n,)
    reference: FloatMatrix  # public points (m, d)
    queries: FloatMatrix  # (q, d)
    truth: AnyArray  # true labels of the queries, (q,)


CLASSES = tuple(range(10))
"""Class names of MNIST and Fashion-MNIST."""

_MAX_REFERENCE = 5000
_MIN_REFERENCE = 20
"""Bounds on the number of public reference points, which are test images that are not queries."""

FEATURES = (
    "histograms of oriented gradients of square-rooted pixels, minus the mean of the public "
    f"reference, {PublicMap().n_components} principal components of the public reference, "
    "half-whitened, unit length"
)

_SPLIT_SEED = 0  # of the split of the test images; privacy does not depend on it


@dataclass(frozen=True, slots=True, eq=False)
class DemoAnswers:
    """Released answers to all queries with real noise, with their guarantee and public plan.

    `plan` was fixed before the first answer: `n_records` was estimated once with noise, the noise
    on the votes of a class has standard deviation noise_multiplier sqrt(n_neighbors), `budget` is
    each subject's zCDP budget for all answers, and `features` describes the feature map.
    """

    labels: AnyArray  # answered class names (q,)
    truth: AnyArray  # true class names (q,)
    confidence: Floats  # (q,): lead of the best class, in standard deviations of its noise
    guarantee: Guarantee
    plan: dict[str, Any]

    @property
    def outcome(self) -> AnswerCounts:
        """Numbers of correct answers and of all answers."""
        return AnswerCounts.from_answers(self.labels, self.truth)


def prepare_trial(dataset: Dataset, n_queries: int, begin: Begin) -> tuple[Trial, AnyArray]:
    """Return a train-test split with `n_queries` test images as queries, and these images.

    `dataset`: images and labels, with a training and a test part.
    """
    records, test = dataset.split()
    n_reference = min(_MAX_REFERENCE, len(test) - n_queries)
    if n_reference < _MIN_REFERENCE:
        raise InvalidInput(
            f"The test part must have at least {n_queries + _MIN_REFERENCE} images for "
            f"{n_queries} queries and a public reference. Got {len(test)}; ask fewer queries."
        )
    if records.labels is None or test.labels is None:
        raise InvalidInput("The data must have labels, in the training and in the test part.")
    report_progress = begin("HOG features", len(records) + len(test))
    extractor = HOGFeatures(n_jobs=-1)
    images = np.asarray(test.features)
    train_images = np.asarray(records.features)
    private: FloatMatrix = extractor.transform(train_images, progress=report_progress)
    public: FloatMatrix = extractor.transform(images, progress=report_progress)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(test))  # noqa: TID251 (public)
    reference = order[:n_reference]
    queries = order[n_reference : n_reference + n_queries]
    public_map = PublicMap().fit(public[reference])
    trial = Trial(
        CLASSES,
        public_map.transform(private),
        records.labels,
        public_map.transform(public[reference]),
        public_map.transform(public[queries]),
        test.labels[queries],
    )
    return trial, images[queries]


def answer_queries(trial: Trial, epsilon: float, delta: float, begin: Begin) -> DemoAnswers:
    """Return Ind-KNN's answers to all queries of `trial`, without a private model.

    `epsilon`, `delta`: guarantee of all answers together; other parameters of the classifier have
    their defaults.
    """
    n_queries = len(trial.truth)
    classifier = IndKNNClassifier(trial.classes, epsilon, delta, n_queries, model_share=0)
    classifier.fit(trial.records, trial.labels, public=trial.reference)
    with show_progress(begin):
        votes = classifier.query(trial.queries).votes
    assert votes is not None  # noqa: S101 (the default releases votes)
    plan = {
        "n_records": classifier.n_records_,
        "n_reference": len(trial.reference),
        "n_queries": n_queries,
        "n_neighbors": int(classifier.n_neighbors_ or 0),
        "noise_multiplier": classifier.noise_multiplier_,
        "budget": classifier.budget_,
        "features": FEATURES,
    }
    return DemoAnswers(
        classifier.classes_[votes.argmax(axis=1)],
        trial.truth,
        classifier.confidence(votes),
        classifier.guarantee(),
        plan,
    )


_N_TILES = 24
_N_WRONG_TILES = 8
"""Number of queries that the page shows, and number of wrong answers among them, if available."""


def render_demo_page(
    data_name: str,
    answers: DemoAnswers,
    images: AnyArray,
    *,
    command: str,
    version: str,
    seconds: float,
) -> str:
    """Return the report of a demo run as an HTML page, of released values and public facts only.

    `answers`, `images` (q, ...): released answers to q queries, and their images. `command`: the
    run's command line. `version`: vicinal's version. `seconds`: duration of the run.
    """
    from vicinal.reports import plots

    epsilon, delta = answers.guarantee.epsilon, answers.guarantee.delta
    correct = outcomes.mark_correct_answers(answers.labels, answers.truth)
    by_class = AccuracyByClass.from_answers(answers.labels, answers.truth, CLASSES).by_class
    return text.render_template(
        "demo.html",
        title=f"Private predictions on {data_name}",
        data=data_name,
        command=command,
        version=version,
        seconds=seconds,
        answers=answers,
        attack_success_bound=text.format_upper_percent(text.bound_attack_success(epsilon, delta)),
        gaussian_success_bound=text.format_upper_percent(
            text.bound_gaussian_success(answers.plan["budget"], delta)
        ),
        most_confident_half=outcomes.count_correct_of_most_confident(
            correct, answers.confidence, 0.5
        ),
        by_class=_make_data_url(plots.plot_accuracy_by_class(by_class)),
        class_shares=", ".join(
            f"{name}: {text.format_percent(outcome.accuracy)}"
            for name, outcome in by_class.items()
            if outcome.total
        ),
        tiles=_select_tiles(answers, images),
    )


def _select_tiles(answers: DemoAnswers, images: AnyArray) -> list[dict[str, str]]:
    """Return the image and caption of some answers, for the page's template.

    Correct answers, and wrong ones, are selected at equal distances in the order of confidence.
    `images` (q, ...): images of all queries.
    """
    from vicinal.reports.plots import encode_png

    correct = outcomes.mark_correct_answers(answers.labels, answers.truth)
    order = np.argsort(-answers.confidence, kind="stable")
    wrong_queries = _select_evenly(order[~correct[order]], _N_WRONG_TILES)
    correct_queries = _select_evenly(order[correct[order]], _N_TILES - len(wrong_queries))
    selected = {*wrong_queries, *correct_queries}
    return [
        {
            "address": _make_data_url(encode_png(images[query]), "png"),
            "alt": f"query {query + 1}",
            "kind": "right" if correct[query] else "wrong",
            "answer": f"{answers.labels[query]}"
            + ("" if correct[query] else f", not {answers.truth[query]}"),
            "lead": f"lead {answers.confidence[query]:.1f}",
        }
        for query in order.tolist()
        if query in selected
    ]


def _select_evenly(indices: Indices, max_count: int) -> list[int]:
    """Return at most `max_count` of `indices` (k,), evenly spaced, with the first and the last."""
    positions = np.linspace(0, len(indices) - 1, min(max_count, len(indices)))
    return [int(indices[round(float(position))]) for position in positions]


def _make_data_url(image_file: bytes, media_subtype: str = "svg+xml") -> str:
    """Return the bytes of an image file as a data URL."""
    return f"data:image/{media_subtype};base64,{base64.b64encode(image_file).decode('ascii')}"
