"""Private-kNN and PATE for a target epsilon: their parameters by public rules, nothing tuned.

Each rule keeps the proportions of the method's own paper and leaves one number open, the noise on
votes; that number is found by our accounting, at the best valid bound, so that the whole plan
keeps the target. Nothing looks at a record, a label or an answer.

Private-kNN (ZYCW20, MNIST in Table 1): k = 12 sigma_votes; with screening sigma_screen = 3
sigma_votes, threshold .6 k, and answers planned for 735 queries of 1,000; gamma .15. k is at most
gamma n / (2 c), beyond which a class of average size cannot win: the same limit as the default's.

PATE (P18, MNIST): 6.25 sigma_votes teachers; with screening sigma_screen = .6 and threshold .8 of
the number of teachers. There are at most n / (6 c) teachers, so that a teacher has 6 records of
each class or more.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from experiments.trials import Setting
from vicinal.accounting import Plan
from vicinal.baselines import PATEClassifier
from vicinal.errors import PrivacyRefused
from vicinal.predictors import PrivateKNNClassifier

Options = dict[str, Any]

GAMMA = 0.15
NEIGHBORS_PER_NOISE = 12.0
ANSWERED = 0.735
TEACHERS_PER_NOISE = 6.25
RECORDS_PER_TEACHER_AND_CLASS = 6

_CLOSE = 0.985
"""A plan is close enough from this share of the target on; it is never above the target."""

_AIM = 0.993
_TRIES = 40
_START = 50.0
_LABELS_NEED = 0.87


class Facts(NamedTuple):
    """Public facts of the data: declared numbers of records and of classes."""

    n_records: int
    n_classes: int


@lru_cache(maxsize=256)
def private_knn(setting: Setting, facts: Facts, screened: bool) -> Options:
    """Return the parameters of a Private-kNN classifier whose plan keeps the setting's epsilon.

    Labels alone leave, which is cheaper than votes.

    Raises PrivacyRefused if no noise keeps the target.
    """
    options = partial(_private_knn_options, setting, facts, screened)

    def cost(noise: float, release: str = "label") -> float:
        given = options(noise, release)
        return _cost(PrivateKNNClassifier(range(facts.n_classes), **given).plan())

    # Votes need a little more noise than labels, and are priced in no time: a good start.
    start = _noise(lambda noise: cost(noise, "votes"), setting.epsilon, _START)
    return options(_noise(cost, setting.epsilon, _LABELS_NEED * start))


def _private_knn_options(
    setting: Setting, facts: Facts, screened: bool, noise: float, release: str = "label"
) -> Options:
    """Return the parameters of Private-kNN that go with a scale of noise on its votes."""
    most = max(1, int(GAMMA * facts.n_records) // (2 * facts.n_classes))
    k = max(1, min(round(NEIGHBORS_PER_NOISE * noise), most))
    given: Options = {"n_neighbors": k, "sampling_rate": GAMMA}
    given |= {"sigma_votes": noise, "release": release}
    if screened:
        given |= {"sigma_screen": 3 * noise, "threshold": 0.6 * k, "n_answers": _planned(setting)}
    return given | {"n_queries": setting.n_queries, "delta": setting.delta}


@lru_cache(maxsize=256)
def pate(setting: Setting, facts: Facts, screened: bool) -> Options:
    """Return the parameters of a PATE classifier whose plan keeps the setting's epsilon.

    The cost does not depend on votes: what does is private, and publishing it costs again.

    Raises PrivacyRefused if no noise keeps the target.
    """
    options = partial(_pate_options, setting, facts, screened)

    def cost(noise: float) -> float:
        return _cost(PATEClassifier(range(facts.n_classes), **options(noise)).plan())

    return options(_noise(cost, setting.epsilon, _START))


def _pate_options(setting: Setting, facts: Facts, screened: bool, noise: float) -> Options:
    """Return the parameters of PATE that go with a scale of noise on its votes."""
    most = max(1, facts.n_records // (RECORDS_PER_TEACHER_AND_CLASS * facts.n_classes))
    teachers = max(1, min(round(TEACHERS_PER_NOISE * noise), most))
    given: Options = {"n_teachers": teachers, "sigma_votes": noise, "release": "label"}
    if screened:
        given |= {
            "sigma_screen": 0.6 * teachers,
            "threshold": 0.8 * teachers,
            "n_answers": _planned(setting),
        }
    return given | {"n_queries": setting.n_queries, "delta": setting.delta}


def _planned(setting: Setting) -> int:
    """Return how many answers a screened plan expects to give."""
    return max(1, int(ANSWERED * setting.n_queries))


def _cost(plan: Options) -> float:
    """Return the smallest valid epsilon of a plan; infinity if a bound cannot be computed."""
    checked = Plan.from_dict(plan)
    return checked.composition().compute_min_epsilon(checked.delta)


def _noise(cost: Callable[[float], float], target: float, start: float) -> float:
    """Return a scale of noise that keeps the target, and that smaller ones by 2 % may not.

    Cost is about proportional to 1 / noise, so that a few proportional steps are enough. Where
    screening keeps the cost up however large the noise is, there is no answer.
    """
    noise = start
    for _ in range(_TRIES):
        found = cost(noise)
        if _CLOSE * target <= found <= target:
            return noise
        noise *= min(max(found / (_AIM * target), 0.1), 10.0)
    raise PrivacyRefused(
        f"No noise was found that keeps epsilon {target:g}. Take a larger epsilon, or fewer "
        "queries."
    )
