"""From the parameters of a Private-kNN classifier to its plan, and to what answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vicinal._arrays import AnyArray, FloatMatrix
from vicinal._parameters import AUTO, Auto, Choice, Integer, Real, Unless, parameter, table
from vicinal.errors import InvalidInput
from vicinal.mechanisms import (
    FINEST,
    ClippedVotes,
    NoisyMax,
    OneHotVotes,
    PrivateKNNRelease,
    ReleaseCounter,
    VoteEncoding,
    bernoulli_source,
    randomness,
)
from vicinal.neighbours import FLOAT32, RBF, int8_precision
from vicinal.planning import Plan, affordable_noise, summed
from vicinal.predictors._fixed_plan import (
    AnsweringParameters,
    AnsweringSettings,
    check_abstention,
    check_answers,
    check_one_noise,
)
from vicinal.predictors._inputs import FitInputs
from vicinal.targets import label_sets, labels

_FEW_FEATURES = 64
"""Up to here products are cheap, and the fine grid is taken."""

DEFAULT_NOISE = 25.0
"""sigma_votes where neither it nor an epsilon is given."""


@table
class PrivateKNNParameters(AnsweringParameters):
    """What Private-kNN takes besides."""

    k: int = parameter(
        Integer(least=1, most=10**6), default=300, kw_only=False, doc="How many nearest vote."
    )
    gamma: float = parameter(
        Real(above=0, most=1),
        default=0.15,
        kw_only=False,
        doc="""The probability with which each subject takes part in a sample, 0 < gamma <= 1.""",
    )
    tau: float | None = parameter(
        Unless(None, Real(above=0, most=1e6)),
        default=None,
        doc="""For records with several labels (attributes, named by `classes`): the votes of a
        record together count at most `tau` (the tau-approximation). Without screening only.""",
    )
    norm_bound: Auto[float] = parameter(
        Unless(AUTO, Real(above=0)),
        default=AUTO,
        doc="""The longest feature vector that distances are exact for; longer ones are pulled back
        to this length. "auto" takes it from the public reference of `fit`, else from the first
        queries asked, which are public, too.""",
    )
    precision: str = parameter(
        Choice((AUTO, "int8", "float32")),
        default=AUTO,
        doc="""Grid of the features; "auto" is the fast int8 from 64 features on. Distances are
        exact integers on either.""",
    )


class PrivateKNNSettings(PrivateKNNParameters, AnsweringSettings):
    """Checked parameters; None stands for "auto", and for no screening."""

    _name = "Private-kNN"

    def check_together(self) -> None:
        """Refuse what does not go together, and an epsilon that no noise keeps."""
        self._check_screening()
        check_one_noise(self.epsilon, "sigma_votes", self.sigma_votes)
        check_answers(self.n_answers, self.n_queries, self.epsilon)
        self.releases()  # what no noise can keep is refused before anything is changed

    def _check_screening(self) -> None:
        if (self.sigma_screen is None) != (self.threshold is None):
            raise InvalidInput(
                "The 'threshold' and 'sigma_screen' parameters belong together: give both for "
                "screening, or None for both."
            )
        if self.tau is not None and (self.sigma_screen is not None or self.label_only):
            raise InvalidInput(
                "The 'tau' parameter must be None with screening or release='label': records with "
                "several labels are answered with noise on every attribute."
            )
        if self.sigma_screen is None and self.n_answers not in (None, self.n_queries):
            raise InvalidInput(
                "The 'n_answers' parameter must be None without screening: every query is answered."
            )
        if self.sigma_screen is not None:
            check_abstention(self.classes)

    @property
    def vote_noise(self) -> float:
        """The noise scale on votes: as given, or the least that keeps epsilon."""
        if self.epsilon is None:
            return DEFAULT_NOISE if self.sigma_votes is None else self.sigma_votes
        plan = self.together(self._releases(DEFAULT_NOISE))
        return affordable_noise(plan, self.epsilon, "sigma")

    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""
        return self._releases(self.vote_noise)

    def _releases(self, noise: float) -> list[Plan]:
        screening = self._screening({}, self.n_queries)
        return [*screening, *self._votes(self.planned_answers, noise)]

    def releases_at(self, largest: Sequence[int], n_answers: int) -> list[Plan]:
        """Return the releases so far, with the largest votes that they were made at; private."""
        counts = sorted(Counter(largest).items())
        screened = [step for t, n in counts for step in self._screening({"votes": t}, n)]
        return [*screened, *self._votes(n_answers, self.vote_noise)]

    def _screening(self, more: Plan, count: int) -> list[Plan]:
        if self.sigma_screen is None:
            return []
        fields: Plan = {"k": self.k, "classes": len(self.classes), "threshold": self.threshold}
        noise = {"sigma": self.sigma_screen, "gamma": self.gamma, "count": count}
        return [{"kind": "screening", **fields, **noise, **more}]

    def _votes(self, count: int, noise: float) -> list[Plan]:
        shared: Plan = {"sigma": noise, "gamma": self.gamma, "count": count}
        if count == 0:
            return []
        if self.tau is not None:
            return [{"kind": "multilabel", "tau": self.tau, **shared}]
        if self.label_only:
            shared |= {"release": "label", "classes": len(self.classes)}
        return [{"kind": "noisy_max", **shared}]

    def draws(self) -> dict[int, float]:
        """Return how many draws of noise are planned at each scale in steps."""
        screened = float(self.n_queries) * (self.sigma_screen is not None)
        voted = float(self.planned_answers) * len(self.classes)
        return summed([(FINEST, screened), (self._voting(0).scale, voted)])

    def _voting(self, planned: int) -> NoisyMax:
        quota, noise = ReleaseCounter(planned, "answers"), randomness(self.simulation_seed)
        return NoisyMax(self.vote_noise, self.k, quota, noise, label_only=self.label_only)

    def targets(self, y: npt.ArrayLike | None, size: int) -> AnyArray:
        """Return the class of every record, int32 (n,), or its attributes, bool (n, c)."""
        if self.tau is None:
            return labels(y, size, self.classes)
        return label_sets(y, (size, len(self.classes)))

    def encoding(self, targets: AnyArray) -> VoteEncoding:
        """Return what the records vote for, given their :meth:`targets`."""
        if self.tau is None:
            return OneHotVotes(targets, len(self.classes))
        return ClippedVotes(targets, self.tau)

    def kernel(self, public: FloatMatrix, margin: float) -> RBF:
        """Return the kernel whose similarities are negative squared distances.

        `public` (m, d) are public rows that bound and grid are chosen by; `margin` is how far
        beyond them the bound lies.
        """
        bound = self.norm_bound
        if bound is None:
            longest = float(np.sqrt(np.square(public.astype(np.float64)).sum(axis=1)).max())
            bound = margin * longest or 1.0
        fine = self.precision == "float32" or public.shape[1] < _FEW_FEATURES
        if self.precision != "int8" and fine:
            return RBF(1.0, bound, FLOAT32)
        return RBF(1.0, bound, int8_precision(public, bound))

    def start(self, records: FitInputs, targets: AnyArray) -> PrivateKNNRelease:
        """Return what gives the planned answers, with fresh quotas."""
        coins = bernoulli_source(self.simulation_seed)
        release = PrivateKNNRelease(
            records.features,
            *records.slots,
            self.encoding(targets),
            k=self.k,
            gamma=self.gamma,
            grid=self.kernel,
            screening=self.screening(coins),
            voting=self._voting(self.planned_answers),
            coins=coins,
            planned=ReleaseCounter(self.n_queries, "queries"),
        )
        if records.reference is not None:
            release.encode_by(records.reference, margin=1.0)
        return release
