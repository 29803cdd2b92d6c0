"""From the parameters of a Private-kNN classifier to its plan, and to what answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal.errors import InvalidInput
from vicinal.mechanisms import randomness
from vicinal.mechanisms._interactions import interactions
from vicinal.mechanisms._noisy_max import GaussianMax
from vicinal.mechanisms._private_knn import SampledVotes
from vicinal.mechanisms._release_counter import ReleaseCounter
from vicinal.mechanisms._sampling import Bools, NearestOfSample, bernoulli_source
from vicinal.mechanisms._screening import FINEST, NoisyThreshold
from vicinal.mechanisms._vote_encoding import ClippedVotes, OneHotVotes, VoteEncoding
from vicinal.neighbours import FLOAT32, RBF, int8_precision
from vicinal.neighbours._poisson_knn import PoissonKNN
from vicinal.predictors._common import inputs
from vicinal.predictors._common.fixed_plan import Plan, check_abstention, subject_slots, summed
from vicinal.predictors._common.inputs import FitInputs, FloatMatrix

_FEW_FEATURES = 64
"""Up to here products are cheap, and the fine grid is taken."""

_MOST_HITS = 1 << 22
"""Candidates of a block of queries that are held at a time, or so."""

BLOCK = 256
"""Queries whose progress is told together: public, whatever the number of records."""


class PrivateKNNParameters(Protocol):
    """The estimator's parameters, as its constructor takes them; meanings are told there."""

    classes: Any
    k: int
    gamma: float
    sigma_screen: float | None
    threshold: float | None
    sigma_votes: float
    tau: float | None
    n_queries: int
    n_answers: int | None
    delta: float
    release: str
    norm_bound: float | str
    precision: str
    interactions: int | str
    simulation_seed: int | None


@dataclass(frozen=True, slots=True)
class PrivateKNNSettings:
    """Checked parameters; None stands for "auto", and for no screening."""

    classes: npt.NDArray[Any]
    k: int
    gamma: float
    sigma_screen: float | None
    threshold: float | None
    sigma_votes: float
    tau: float | None
    n_queries: int
    n_answers: int
    label_only: bool
    norm_bound: float | None
    precision: str
    interactions: int
    seed: int | None

    @classmethod
    def of(cls, given: PrivateKNNParameters) -> Self:
        """Check an estimator's parameters; raise InvalidInput naming the first bad one."""
        classes = _checks.class_names(given.classes)
        n_queries = _checks.integer("n_queries", given.n_queries, least=1, most=10**9)
        _checks.real("delta", given.delta, above=0, below=1)
        settings = cls(
            classes=classes,
            k=_checks.integer("k", given.k, least=1, most=10**6),
            gamma=_checks.real("gamma", given.gamma, above=0, most=1),
            sigma_screen=_optional("sigma_screen", given.sigma_screen, least=1e-2, most=1e9),
            threshold=_optional("threshold", given.threshold, least=-1e7, most=1e7),
            sigma_votes=_checks.real("sigma_votes", given.sigma_votes, least=1e-2, most=1e9),
            tau=_optional("tau", given.tau, above=0, most=1e6),
            n_queries=n_queries,
            n_answers=_answers(given.n_answers, n_queries),
            label_only=_checks.choice("release", given.release, ("votes", "label")) == "label",
            norm_bound=None
            if isinstance(given.norm_bound, str) and given.norm_bound == "auto"
            else _checks.real("norm_bound", given.norm_bound, above=0),
            precision=_checks.choice("precision", given.precision, ("auto", "int8", "float32")),
            interactions=interactions(given.interactions),
            seed=None
            if given.simulation_seed is None
            else _checks.integer("simulation_seed", given.simulation_seed, least=0),
        )
        settings._check_together()
        return settings

    def _check_together(self) -> None:
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
        if self.sigma_screen is None and self.n_answers != self.n_queries:
            raise InvalidInput(
                "The 'n_answers' parameter must be None without screening: every query is answered."
            )
        if self.sigma_screen is not None:
            check_abstention(self.classes)

    @property
    def terms(self) -> Hashable:
        """What interactions that share the guarantee must have in common: all of the plan."""
        return "Private-kNN", json.dumps(self.releases(), sort_keys=True)

    def releases(self) -> list[Plan]:
        """Return the planned releases as in the JSON of a plan."""
        screening = self._screening({}, self.n_queries)
        return [*screening, *self._votes(self.n_answers)]

    def releases_at(self, largest: Sequence[int], n_answers: int) -> list[Plan]:
        """Return the releases so far, with the largest votes that they were made at; private."""
        counts = sorted(Counter(largest).items())
        screened = [step for t, n in counts for step in self._screening({"votes": t}, n)]
        return [*screened, *self._votes(n_answers)]

    def _screening(self, more: Plan, count: int) -> list[Plan]:
        if self.sigma_screen is None:
            return []
        fields: Plan = {"k": self.k, "classes": len(self.classes), "threshold": self.threshold}
        noise = {"sigma": self.sigma_screen, "gamma": self.gamma, "count": count}
        return [{"kind": "screening", **fields, **noise, **more}]

    def _votes(self, count: int) -> list[Plan]:
        shared: Plan = {"sigma": self.sigma_votes, "gamma": self.gamma, "count": count}
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
        voted = float(self.n_answers) * len(self.classes)
        return summed([(FINEST, screened), (self._voting(0).scale, voted)])

    def _voting(self, planned: int) -> GaussianMax:
        noise = randomness(self.seed)
        return GaussianMax(
            self.sigma_votes,
            self.k,
            ReleaseCounter(planned, "answers"),
            noise,
            label_only=self.label_only,
        )

    def targets(self, y: npt.ArrayLike | None, size: int) -> npt.NDArray[Any]:
        """Return the class of every record, int32 (n,), or its attributes, bool (n, c)."""
        if self.tau is None:
            return inputs.labels(y, size, self.classes)
        return _attributes(y, (size, len(self.classes)))

    def ballots(self, targets: npt.NDArray[Any]) -> VoteEncoding:
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

    def votes(self, walk: PoissonKNN, ballots: VoteEncoding) -> SampledVotes:
        """Return what gives the planned answers, with fresh quotas."""
        noise, coins = randomness(self.seed), bernoulli_source(self.seed)
        screening = None
        if self.sigma_screen is not None and self.threshold is not None:
            quota = ReleaseCounter(self.n_queries, "screenings")
            screening = NoisyThreshold(self.threshold, self.sigma_screen, quota, noise, coins)
        sample = NearestOfSample(walk, self.gamma, coins)
        return SampledVotes(sample, ballots, screening, self._voting(self.n_answers))


class PrivateKNNRelease:
    """Private records that answer as planned; encoded once the grid of features is known.

    Used by one thread at a time.

    Attributes
    ----------
    largest : list of int
        The largest vote of every screened query so far. Private.
    """

    def __init__(
        self, settings: PrivateKNNSettings, records: FitInputs, ballots: VoteEncoding
    ) -> None:
        FLOAT32.scale(records.features.shape[1])  # refuses too many features
        self._settings = settings
        self._features: FloatMatrix | None = records.features.copy()
        self._ballots = ballots
        self._slots, self._n_subjects = subject_slots(records.names)
        self._asked = ReleaseCounter(settings.n_queries, "queries")
        self.largest: list[int] = []

    def encode_by(self, public: FloatMatrix, margin: float) -> None:
        """Fix the grid by public rows (m, d), unless it is fixed; drop the features themselves."""
        if self._features is None:
            return
        settings = self._settings
        self._kernel = settings.kernel(public, margin)
        integers = self._kernel.encode(self._features)
        walk = PoissonKNN(
            self._kernel, integers, self._slots, self._n_subjects, settings.k, settings.gamma
        )
        self._votes = settings.votes(walk, self._ballots)
        self._features = None

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more queries were not planned."""
        self._asked.check(size)

    def blocks(self, queries: FloatMatrix) -> Iterator[FloatMatrix]:
        """Yield consecutive queries, always as many at a time.

        They fix the grid, if nothing has fixed it: with room for queries somewhat longer.
        """
        self.encode_by(queries, margin=1.25)
        for start in range(0, len(queries), BLOCK):
            yield queries[start : start + BLOCK]

    def answer(self, queries: FloatMatrix) -> tuple[Bools, npt.NDArray[Any]]:
        """Take from the quota and answer, see :meth:`SampledVotes.answer`.

        As many queries at a time as memory allows. That follows from the number of records, so
        nothing outside may see it.
        """
        self._asked.note_releases(len(queries))
        integers = self._kernel.encode(queries)
        wanted = int(self._votes.nearest.walk.wanted) + self._settings.k + 1
        size = max(1, _MOST_HITS // wanted)
        starts = range(0, len(integers), size)
        parts = [self._votes.answer(integers[start : start + size]) for start in starts]
        for _, _, largest in parts:
            self.largest += largest
        return np.concatenate([p for p, _, _ in parts]), np.concatenate([a for _, a, _ in parts])


def _optional(name: str, value: object, **bounds: float) -> float | None:
    return None if value is None else _checks.real(name, value, **bounds)


def _answers(value: object, n_queries: int) -> int:
    if value is None:
        return n_queries
    return _checks.integer("n_answers", value, least=0, most=n_queries)


def _attributes(y: npt.ArrayLike | None, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return which attributes every record has; nothing of `y` is echoed."""
    table = np.asarray(y)
    plain = table.shape == shape and table.dtype.kind in "biuf"
    if not plain or not np.isin(table, (0, 1)).all():
        raise InvalidInput(
            f"The 'y' parameter must hold 0 and 1 in shape (n, {shape[1]}) where 'tau' is given: a "
            "row for each record, a column for each class."
        )
    return table.astype(np.bool_)
