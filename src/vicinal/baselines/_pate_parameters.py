"""From the parameters of a PATE classifier to its plan, and to teachers that answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from vicinal._arrays import AnyArray
from vicinal._parameters import Check, Choice, Integer, Real, parameter, table
from vicinal.accounting import Composition, PrivateMaxima, ScreeningAt, SubsampledGaussian
from vicinal.errors import InvalidInput
from vicinal.mechanisms import (
    FINEST,
    NoisyMax,
    PATERelease,
    ReleaseCounter,
    fresh_key,
    randomness,
    train_teachers,
)
from vicinal.planning import Plan, affordable_noise, summed
from vicinal.predictors import (
    VOTE_NOISE,
    AnsweringParameters,
    AnsweringSettings,
    FitInputs,
    check_abstention,
    check_answers,
    check_one_noise,
)

GNMAX = "gnmax"
CONFIDENT_GNMAX = "confident_gnmax"
MECHANISMS = (GNMAX, CONFIDENT_GNMAX)
"""How votes become answers; see :class:`PATEClassifier`."""

DEFAULT_NOISE = 40.0
"""The scale of the noise on votes where neither it nor an epsilon is given."""


@dataclass(frozen=True, slots=True)
class TeacherModel(Check):
    """A scikit-learn classifier; logistic regression where none is given."""

    type_name = "scikit-learn classifier, optional"
    refused: ClassVar[tuple[object, ...]] = ("a teacher", 3, [])

    def __call__(self, name: str, value: Any) -> Any:
        """Return it."""
        if value is None:
            from sklearn.linear_model import LogisticRegression

            return LogisticRegression(max_iter=200)
        if not all(hasattr(value, method) for method in ("fit", "predict", "get_params")):
            raise InvalidInput(
                f"The {name!r} parameter must be a scikit-learn classifier. Got {value!r}."
            )
        return value


@table
class PATEParameters(AnsweringParameters):
    """What PATE takes besides."""

    n_teachers: int = parameter(
        Integer(least=1, most=10**6), default=250, kw_only=False, doc="How many teachers there are."
    )
    mechanism: str = parameter(
        Choice(MECHANISMS),
        default=GNMAX,
        doc="""Gaussian noise on the votes of all queries, or of those only whose largest vote
        count, with noise of scale `sigma_screen`, reaches `threshold`.""",
    )
    teacher: Any = parameter(
        TeacherModel(),
        default=None,
        doc="""What every teacher is a clone of; logistic regression, if left out. It must read
        nothing but its arguments and its ``random_state``.""",
    )


class PATESettings(PATEParameters, AnsweringSettings):
    """Checked parameters of a PATE classifier; None stands for "auto", and for no screening."""

    _name = "PATE"

    def check_together(self) -> None:
        """Refuse what does not go together, and an epsilon that no noise keeps."""
        self._check_screening()
        check_answers(self.n_answers, self.n_queries, self.epsilon)
        check_one_noise(self.epsilon, "sigma_votes", self.sigma_votes)
        self.releases()  # what no noise can keep is refused before anything is changed

    def _check_screening(self) -> None:
        if self.screened:
            check_abstention(self.classes)
            VOTE_NOISE("sigma_screen", self.sigma_screen)
            Real(least=-1e7, most=1e7)("threshold", self.threshold)
            return
        for name in ("sigma_screen", "threshold", "n_answers"):
            if getattr(self, name) is not None:
                raise InvalidInput(
                    f"The {name!r} parameter belongs to mechanism='confident_gnmax'."
                )

    @property
    def vote_noise(self) -> float:
        """The noise scale on votes: as given, or the least that keeps epsilon."""
        if self.epsilon is None:
            return DEFAULT_NOISE if self.sigma_votes is None else self.sigma_votes
        field = "sigma" if self.mechanism == GNMAX else "sigma_votes"
        return affordable_noise(self.together(self._releases(DEFAULT_NOISE)), self.epsilon, field)

    @property
    def screened(self) -> bool:
        """Whether queries are screened."""
        return self.mechanism == CONFIDENT_GNMAX

    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""
        return self._releases(self.vote_noise)

    def _releases(self, noise: float) -> list[Plan]:
        leaves = {"release": "label" if self.label_only else "votes"}
        if self.mechanism == GNMAX:
            return [{"kind": GNMAX, "sigma": noise, "count": self.n_queries, **leaves}]
        return [
            {
                "kind": CONFIDENT_GNMAX,
                "teachers": self.n_teachers,
                "threshold": self.threshold,
                "sigma_screen": self.sigma_screen,
                "sigma_votes": noise,
                "answered": self.planned_answers,
                "count": self.n_queries,
                **leaves,
            }
        ]

    def draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        screened = float(self.n_queries) * self.screened
        voted = float(self.planned_answers) * len(self.classes)
        return summed([(FINEST, screened), (self.voting().scale, voted)])

    def voting(self) -> NoisyMax:
        """Return the noisy maximum, with a fresh quota."""
        quota = ReleaseCounter(self.planned_answers, "answers")
        noise = randomness(self.simulation_seed)
        return NoisyMax(self.vote_noise, self.n_teachers, quota, noise, label_only=self.label_only)

    def start(self, records: FitInputs, targets: AnyArray) -> PATERelease:
        """Return what gives the planned answers, with fresh quotas."""
        simulated = self.simulation_seed is not None
        key = f"simulated:{self.simulation_seed}".encode() if simulated else fresh_key()
        teachers = train_teachers(
            self.teacher, records.features, targets, list(records.names), key, self.n_teachers,
            len(self.classes),
        )  # fmt: skip
        return PATERelease(
            teachers,
            len(self.classes),
            self.screening(),
            self.voting(),
            ReleaseCounter(self.n_queries, "queries"),
        )

    def composition_at(
        self, largest: Sequence[int], votes: Sequence[tuple[float, ...]]
    ) -> Composition:
        """Return the releases so far, at their own votes. Private."""
        total = Composition()
        if self.sigma_screen is not None and self.threshold is not None:
            screened = self.n_teachers, self.threshold, self.sigma_screen
            for most, count in sorted(Counter(largest).items()):
                total = total.add(Composition.of(ScreeningAt(most, *screened), count))
        if not votes:
            return total
        if not self.label_only:
            # The cost at the votes is known for labels only.
            noise = SubsampledGaussian(self.vote_noise / math.nextafter(math.sqrt(2), 2))
            return total.add(Composition.of(noise, len(votes)))
        return total.add(Composition.of(PrivateMaxima(self.vote_noise, tuple(votes))))
