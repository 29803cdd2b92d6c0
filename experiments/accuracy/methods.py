"""The methods of the great table: each answers the queries of a trial within a guarantee.

All get the same features, records, public rows and queries, and nothing is tuned: every parameter
comes from defaults, from public rows or from :mod:`experiments.accuracy.calibrated`. Simulated
with seeded noise, so that tables can be repeated; without a guarantee.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.accuracy import calibrated
from experiments.trials import Setting, plain_neighbors
from vicinal.accounting.budget import zcdp_budget as budget
from vicinal.baselines import NoisySGDClassifier, PATEClassifier
from vicinal.engine.noise_schedule import compute_n_neighbors
from vicinal.errors import InvalidInput, PrivacyWarning
from vicinal.predictors import IndKNNClassifier, PrivateKNNClassifier
from vicinal.reports.demo import Trial

MODEL = "model"

_PROBES = 2000
_LOWER_QUARTILE = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a method said.

    - `labels` (array (q,)): class names; -1 where a query did not pass a screening.
    - `asked` (bool (q,)): whether private records were asked for the answer.
    - `detail`: public parameters, for the reader of the table.
    """

    labels: npt.NDArray[Any]
    asked: npt.NDArray[np.bool_]
    detail: Mapping[str, float] = field(default_factory=dict)


Answer = Callable[[Trial, Setting, int], Reply]

NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Contender:
    """A method by its name on the command line.

    - `words`: the method in tables.
    - `answer`: answers the queries of a trial in a setting, with a seed.
    - `seconds`: processor time of a fit, and of 1,000 answers, on 60,000 records; to announce a
      run.
    - `by_epsilon`, `by_queries`: whether the answers depend on epsilon, and on how many are planned
      for.
    - `private`: whether it protects anybody.
    """

    words: str
    answer: Answer
    seconds: tuple[float, float]
    by_epsilon: bool = True
    by_queries: bool = True
    private: bool = True


def _ind_knn(**options: Any) -> Answer:
    def answer(trial: Trial, setting: Setting, seed: int) -> Reply:
        classifier = IndKNNClassifier(
            trial.classes, setting.epsilon, setting.delta, setting.n_queries,
            n_records=len(trial.records), simulation_seed=seed, **{"model_share": 0, **options},
        )  # fmt: skip
        return _replied(classifier, trial)

    return answer


def _preset(trial: Trial, setting: Setting, seed: int) -> Reply:
    """Answer by the published algorithm, its radius and noise by public rules."""
    tau = public_radius(trial, setting)
    classifier = IndKNNClassifier.zhu2023(
        trial.classes, setting.epsilon, setting.delta, setting.n_queries,
        tau=tau, noise_multiplier=1.0, simulation_seed=seed,
    ).set_params(noise_multiplier="auto")  # fmt: skip
    return _replied(classifier, trial, tau=tau)


def _replied(classifier: IndKNNClassifier, trial: Trial, **detail: float) -> Reply:
    classifier.fit(trial.records, trial.labels, public=trial.reference)
    answers = classifier.query(trial.queries)
    plan = {"k": classifier.n_neighbors_, "noise_multiplier": classifier.noise_multiplier_}
    told = {name: float(value) for name, value in plan.items() if value is not None}
    if (chances := classifier.model_probabilities(trial.queries)) is not None:
        alone = classifier.classes_[chances.argmax(axis=1)]
        detail["model_alone"] = float((alone == trial.truth).mean())
    return Reply(classifier.classes_[answers.labels], answers.asked, {**told, **detail})


def public_radius(trial: Trial, setting: Setting) -> float:
    """Return a fixed radius tau inside which three of four queries find neighbours enough.

    The lower quartile of what the adaptive radius would be around public rows, for as many
    neighbours as the default plans for. The paper's radius is chosen by accuracy, which costs
    privacy that nobody accounts for.
    """
    n_records, n_reference = len(trial.records), len(trial.reference)
    spendable = budget(setting.epsilon, setting.delta, "rdp")
    n_classes = len(trial.classes)
    k = compute_n_neighbors(n_records, setting.n_queries, spendable, n_classes, n_reference)
    rows = np.asarray(trial.reference, dtype=np.float64)
    probes = rows[:_PROBES]
    cosines = probes @ rows.T
    cosines[np.arange(len(probes)), np.arange(len(probes))] = -1.0  # nobody is near themselves
    rank = min(max(1, round(k * n_reference / n_records)), n_reference - 1)
    nearest = -np.partition(-cosines, rank - 1, axis=1)[:, rank - 1]
    return float(np.clip(np.quantile(nearest, _LOWER_QUARTILE), -1, 1))


def _private_knn(*, screened: bool) -> Answer:
    def answer(trial: Trial, setting: Setting, seed: int) -> Reply:
        options = calibrated.private_knn(setting, _facts(trial), screened)
        classifier = PrivateKNNClassifier(trial.classes, simulation_seed=seed, **options)
        classifier.fit(trial.records, trial.labels, public=trial.reference)
        return _all_asked(classifier.predict(trial.queries), options, "n_neighbors", "sigma_votes")

    return answer


def _pate(*, screened: bool) -> Answer:
    def answer(trial: Trial, setting: Setting, seed: int) -> Reply:
        from sklearn.linear_model import RidgeClassifier

        options = calibrated.pate(setting, _facts(trial), screened)
        classifier = PATEClassifier(
            trial.classes, teacher=RidgeClassifier(), simulation_seed=seed, **options
        ).fit(trial.records, trial.labels)
        return _all_asked(classifier.predict(trial.queries), options, "n_teachers", "sigma_votes")

    return answer


def _all_asked(labels: npt.NDArray[Any], options: calibrated.Options, *told: str) -> Reply:
    detail = {name: float(options[name]) for name in told}
    return Reply(labels, np.ones(len(labels), dtype=bool), detail)


def _facts(trial: Trial) -> calibrated.Facts:
    return calibrated.Facts(len(trial.records), len(trial.classes))


def _noisy_sgd(rate: float) -> Answer:
    """Train on half-whitened components at length 1, with settings for 60,000 records."""

    def answer(trial: Trial, setting: Setting, seed: int) -> Reply:
        model = NoisySGDClassifier(
            trial.classes, setting.epsilon, delta=setting.delta, n_records=len(trial.records),
            simulation_seed=seed, clip=0.5, learning_rate=rate,
        ).fit(trial.records, trial.labels)  # fmt: skip
        detail = {"noise_multiplier": model.noise_multiplier_}
        return _none_asked(model.predict(trial.queries), detail)

    return answer


def _none_asked(labels: npt.NDArray[Any], detail: Mapping[str, float] = NOTHING) -> Reply:
    """Return the reply of a public model: asking it costs nothing."""
    return Reply(labels, np.zeros(len(labels), dtype=bool), detail)


def _least_squares(trial: Trial, setting: Setting, seed: int) -> Reply:
    """Answer by least squares on noisy second moments, as dp-learning-ff does.

    Everybody is in two sums of norm 1, of x x' and of x y' with x of length 1: mu squared is 2 over
    the squared noise. The ridge is of the size of the noise's largest eigenvalue.
    """
    generator = np.random.default_rng(seed)  # noqa: TID251 (a simulated rival)
    X, Q = unit_rows(trial.records), unit_rows(trial.queries)
    sigma = math.sqrt(2 / (2 * budget(setting.epsilon, setting.delta, "gdp")))
    noise = np.triu(generator.normal(scale=sigma, size=(X.shape[1], X.shape[1])))
    moments = X.T @ X + noise + np.triu(noise, 1).T
    wanted = X.T @ (trial.labels[:, None] == np.asarray(trial.classes)).astype(float)
    wanted += generator.normal(scale=sigma, size=wanted.shape)
    ridge = 2 * sigma * math.sqrt(len(moments))
    weights = np.linalg.solve(moments + ridge * np.eye(len(moments)), wanted)
    return _none_asked(np.asarray(trial.classes)[(Q @ weights).argmax(axis=1)])


def unit_rows(rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return rows of length 1."""
    found = np.asarray(rows, dtype=np.float64)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))


def _linear(trial: Trial, _setting: Setting, _seed: int) -> Reply:
    """Answer by logistic regression, without privacy."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=100.0, max_iter=200).fit(unit_rows(trial.records), trial.labels)
    return _none_asked(model.predict(unit_rows(trial.queries)))


def _not_private(trial: Trial, _setting: Setting, _seed: int) -> Reply:
    labels = plain_neighbors(trial)
    return Reply(labels, np.ones(len(labels), dtype=bool))


CONTENDERS: Mapping[str, Contender] = MappingProxyType(
    {
        "zhu2023": Contender("Ind-KNN, Zhu et al. 2023", _preset, (0.7, 0.5)),
        "default": Contender("Ind-KNN, default", _ind_knn(), (0.5, 0.15)),
        "labels": Contender("Ind-KNN, labels alone", _ind_knn(release="label"), (0.5, 0.15)),
        MODEL: Contender(
            "Ind-KNN, private model", _ind_knn(model_share="auto"), (6.0, 0.1)
        ),
        "hashing": Contender("Ind-KNN, hashing", _ind_knn(index="lsh"), (1.0, 0.8)),
        "private-knn": Contender("Private-kNN", _private_knn(screened=False), (4.0, 0.5)),
        "private-knn-screened": Contender(
            "Private-kNN, screened", _private_knn(screened=True), (4.0, 0.6)
        ),
        "pate": Contender("PATE", _pate(screened=False), (4.0, 1.0)),
        "pate-screened": Contender("PATE, screened", _pate(screened=True), (4.0, 1.0)),
        "noisy-sgd": Contender("NoisySGD", _noisy_sgd(4.0), (2.0, 0.01), by_queries=False),
        "noisy-sgd-short": Contender(
            "NoisySGD, half the step", _noisy_sgd(2.0), (2.0, 0.01), by_queries=False
        ),
        "noisy-sgd-long": Contender(
            "NoisySGD, twice the step", _noisy_sgd(8.0), (2.0, 0.01), by_queries=False
        ),
        "least-squares": Contender(
            "noisy least squares", _least_squares, (0.5, 0.01), by_queries=False
        ),
        "linear": Contender(
            "logistic regression, not private", _linear, (20.0, 0.01),
            by_epsilon=False, by_queries=False, private=False,
        ),
        "not-private": Contender(
            "200-NN, not private", _not_private, (0.1, 1.0),
            by_epsilon=False, by_queries=False, private=False,
        ),
    }
)  # fmt: skip


def chosen(names: list[str] | None, otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of contenders, checked, each once.

    Raises InvalidInput if there is no such method.
    """
    for name in names or ():
        contender_of(name)
    return tuple(dict.fromkeys(names or otherwise))


def contender_of(name: str) -> Contender:
    """Return a contender by its name.

    Raises InvalidInput if there is no such method.
    """
    if name not in CONTENDERS:
        raise InvalidInput(f"There is no method {name!r}. There are {', '.join(CONTENDERS)}.")
    return CONTENDERS[name]


def answered(name: str, trial: Trial, setting: Setting, seed: int) -> Reply:
    """Return what a method says about the queries of a trial, without its warnings.

    More queries than planned, or a public set that is small for them, are the experiment's.
    """
    with silenced():
        return contender_of(name).answer(trial, setting, seed)


@contextmanager
def silenced() -> Iterator[None]:
    """Leave out warnings of what an experiment does on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        warnings.filterwarnings("ignore", "The public reference is too small", UserWarning)
        warnings.filterwarnings("ignore", "The queries do not look like", UserWarning)
        yield
