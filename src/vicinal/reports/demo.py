"""The demonstration: public data with a part played as private.

What :func:`answer` returns has real noise.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, FloatMatrix, Floats, Places
from vicinal.datasets.dataset import Dataset
from vicinal.errors import InvalidInput
from vicinal.features.hog import HOGFeatures
from vicinal.features.public_map import PublicMap
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.progress import Begin, show_progress
from vicinal.reports import outcomes
from vicinal.reports import text as words
from vicinal.reports.outcomes import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One split, ready for every method: mapped features, and the queries' true labels."""

    classes: Sequence[Any]
    records: FloatMatrix
    labels: AnyArray
    reference: FloatMatrix
    queries: FloatMatrix
    truth: AnyArray

    def first(self, n_queries: int) -> Trial:
        return replace(self, queries=self.queries[:n_queries], truth=self.truth[:n_queries])


CLASSES = tuple(range(10))

MOST_REFERENCE = 5000
LEAST_REFERENCE = 20
"""Public reference points: as many as the test part has besides the queries, in these bounds."""

FEATURES = (
    "histograms of oriented gradients of square-rooted pixels, minus the mean of the public "
    f"reference, {PublicMap().n_components} principal components of the public reference, "
    "half-whitened, unit length"
)

_SPLIT_SEED = 0
"""Of a public split; no privacy hangs on it."""


@dataclass(frozen=True, slots=True, eq=False)
class DemoAnswers:
    """What one run with real noise gave: answers, and what may be told about them.

    `confidence` (q,) is the lead of the best class over the next, in standard deviations of the
    noise on that lead. `plan` was fixed before the first answer, and everybody may know all of it:
    `n_records` was estimated once with noise; noise on each class's votes has standard deviation
    noise_multiplier sqrt(n_neighbors); `budget` is what each subject may lose in zCDP over all
    answers; `features` is the map in words.
    """

    labels: AnyArray
    truth: AnyArray
    confidence: Floats
    guarantee: Guarantee
    plan: dict[str, Any]

    @property
    def outcome(self) -> Outcome:
        return Outcome.of(self.labels, self.truth)


def prepare(dataset: Dataset, n_queries: int, begin: Begin) -> tuple[Trial, AnyArray]:
    """Return a trial with the features of the data, mapped by its reference; and query images."""
    records, test = dataset.split()
    n_reference = min(MOST_REFERENCE, len(test) - n_queries)
    if n_reference < LEAST_REFERENCE:
        raise InvalidInput(
            f"The test part must have at least {n_queries + LEAST_REFERENCE} images for "
            f"{n_queries} queries and a public reference. Got {len(test)}; ask fewer queries."
        )
    if records.labels is None or test.labels is None:
        raise InvalidInput("The data must have labels, in the training and in the test part.")
    step = begin("HOG features", len(records) + len(test))
    extractor, images = HOGFeatures(n_jobs=-1), np.asarray(test.features)
    private: FloatMatrix = extractor.transform(np.asarray(records.features), progress=step)
    public: FloatMatrix = extractor.transform(images, progress=step)
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(test))  # noqa: TID251 (public)
    reference, queries = order[:n_reference], order[n_reference : n_reference + n_queries]
    fitted = PublicMap().fit(public[reference])
    trial = Trial(
        CLASSES,
        fitted.transform(private),
        records.labels,
        fitted.transform(public[reference]),
        fitted.transform(public[queries]),
        test.labels[queries],
    )
    return trial, images[queries]


def answer(trial: Trial, epsilon: float, delta: float, begin: Begin) -> DemoAnswers:
    """Answer all queries with real noise, nothing tuned, by neighbours alone."""
    n_queries = len(trial.truth)
    classifier = IndKNNClassifier(trial.classes, epsilon, delta, n_queries, model_share=0)
    classifier.fit(trial.records, trial.labels, public=trial.reference)
    with show_progress(begin):
        votes = classifier.query(trial.queries).votes
    assert votes is not None  # noqa: S101 (votes leave)
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


TILES = 24
WRONG_TILES = 8
"""Queries shown, and how many of them were answered wrongly, if there are as many."""


def html_page(data: str, answers: DemoAnswers, images: AnyArray, **run: Any) -> str:
    """Return the page as HTML, for phone, dark mode and print.

    None of it depends on what is left of anybody's budget. `run` has the rest that is shown: its
    `command` and `version`, and `seconds` until the page was written.
    """
    from vicinal.reports import plots

    epsilon, delta = answers.guarantee.epsilon, answers.guarantee.delta
    right = outcomes.compare_answers(answers.labels, answers.truth)
    by_class = outcomes.outcome_by_class(answers.labels, answers.truth, CLASSES)
    return words.rendered(
        "demo.html",
        title=f"Private predictions on {data}",
        data=data,
        **run,
        answers=answers,
        coin=words.percent_up(words.guess_limit(epsilon, delta)),
        sharper=words.percent_up(words.gaussian_guess_limit(answers.plan["budget"], delta)),
        surest_half=outcomes.outcome_of_surest(right, answers.confidence, 0.5),
        by_class=_address(plots.accuracy_by_class(by_class)),
        class_shares=", ".join(
            f"{name}: {words.format_percent(one.accuracy)}"
            for name, one in by_class.items()
            if one.total
        ),
        tiles=_tiles(answers, images),
    )


def _tiles(answers: DemoAnswers, images: AnyArray) -> list[dict[str, str]]:
    """Return tiles of some queries, some answered wrongly, over the range of confidence."""
    from vicinal.reports.plots import picture

    right = outcomes.compare_answers(answers.labels, answers.truth)
    order = np.argsort(-answers.confidence, kind="stable")  # from the surest on
    wrong = _evenly(order[~right[order]], WRONG_TILES)
    shown = {*wrong, *_evenly(order[right[order]], TILES - len(wrong))}
    return [
        {
            "address": _address(picture(images[place]), "png"),
            "alt": f"query {place + 1}",
            "kind": "right" if right[place] else "wrong",
            "answer": str(answers.labels[place])
            + ("" if right[place] else f", not {answers.truth[place]}"),
            "lead": f"lead {answers.confidence[place]:.1f}",
        }
        for place in order.tolist()
        if place in shown
    ]


def _evenly(places: Places, most: int) -> list[int]:
    steps = np.linspace(0, len(places) - 1, min(most, len(places)))
    return [int(places[round(float(step))]) for step in steps]


def _address(data: bytes, kind: str = "svg+xml") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
