"""Audits of Ind-KNN through the public estimator: votes, labels, reuse, returns, private counts.

The subject at risk spends its whole budget in one place, so that the claim is met and not only
kept. The attacker knows everything but whether it is there: the same estimator without noise gives
it the mean of every vote in both worlds, and it tests by the likelihood ratio.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr
from scipy.stats import binom

from vicinal.accounting._budget import UNITS
from vicinal.audit._bounds import Floats, RateBounds
from vicinal.audit._claims import Claim, GaussianClaim, RenyiClaim
from vicinal.audit._trials import AuditTrial, WeakerNoise
from vicinal.audit._universes import Placed, Universes, universes
from vicinal.mechanisms import NoiseSource
from vicinal.mechanisms._votes import SLACK_SHARE, BlockRelease
from vicinal.predictors import IndKNNClassifier
from vicinal.predictors.ind_knn._parameters import IndKNNSettings

NOISE, NEIGHBORS = 8.0, 4
"""Noise in votes, and neighbours, where the audited settings leave them open."""

_RECORDS = 1 << 14  # of all universes together, or so
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)
_OFFSETS = np.linspace(0.0, 3.0, 13)
_SHIFTS = np.linspace(1e-3, 1.0, 1000)
_EXPECTED_RUNS = 300_000
_LASTS = 2  # labels that a budget pays for, of somebody alone
_MANY, _COMPANY = 30, 5  # records of the subject at risk, and of others


@dataclass(frozen=True)
class Damage:
    """What a broken version does wrong; all False is the installed one.

    Attributes
    ----------
    noise_divisor : int
        Noise scales are divided by it.
    skips_charges : bool
        Budgets are put back after every round.
    refills : bool
        Who leaves is forgotten, and returns with a full budget.
    forgets_subjects : bool
        Every record counts as a subject of its own.
    """

    noise_divisor: int = 1
    skips_charges: bool = False
    refills: bool = False
    forgets_subjects: bool = False


HONEST = Damage()

REPEATS = 64
"""Runs that share one pass of charging: noise is drawn for each anew."""


@dataclass(frozen=True)
class ChargedBlock:
    """A release that has charged for `votes`, int64 (q, c), and not yet added noise to them."""

    release: BlockRelease
    votes: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Visits:
    """One data set of universes behind a classifier, asked round after round.

    Attributes
    ----------
    parameters : mapping
        Of :class:`~vicinal.predictors.IndKNNClassifier`.
    world : Universes
        Who is there, and what is asked.
    rounds : int
        How often every universe is asked.
    returns : bool
        Whether the subjects at risk leave and come back between rounds.
    """

    parameters: Mapping[str, Any]
    world: Universes
    rounds: int
    returns: bool = False

    def sums(self, present: bool, damage: Damage = HONEST) -> Floats:
        """Return votes without noise, in noise scales, (rounds, universes, classes)."""
        return np.stack(
            [one.votes / one.release.scales[:, None] for one in self.charged(present, damage)]
        )

    def answers(self, present: bool, damage: Damage = HONEST) -> npt.NDArray[Any]:
        """Return what left of :data:`REPEATS` times all universes, rounds first.

        Votes (rounds, runs, classes) in noise scales, or labels (rounds, runs). Contributions and
        charges do not depend on noise; they are made once for all repeats, by the same release
        that then adds noise to each of them.
        """
        rounds = []
        for one in self.charged(present, damage):
            drawn = [one.release.publish(one.votes) for _ in range(REPEATS)]
            scales = 1.0 if one.release.mechanism.label_only else one.release.noise[:, None]
            rounds.append(np.concatenate([answer / scales for answer in drawn]))
        return np.stack(rounds)

    def charged(self, present: bool, damage: Damage = HONEST) -> list[ChargedBlock]:
        """Return every round's release with the sums that it charged for."""
        with warnings.catch_warnings():
            # Attackers ask for more than was planned; they are warned, and the guarantee holds.
            warnings.simplefilter("ignore")
            classifier = self.fitted(present, damage)
            found = []
            for number in range(self.rounds):
                if number:
                    self._between_rounds(classifier, present, damage)
                found.append(charged_block(classifier, self.world.queries))
        return found

    def fitted(self, present: bool, damage: Damage = HONEST) -> IndKNNClassifier:
        """Return a classifier of one world, broken as `damage` says."""
        people = self.world.people(present)
        subjects = None if damage.forgets_subjects else people.subjects
        classifier = IndKNNClassifier(**self.parameters, interactions="public")
        classifier.fit(people.X, people.y, subjects, public=self.world.public)
        if damage.noise_divisor > 1:
            draw_from(classifier, WeakerNoise(damage.noise_divisor))
        return classifier

    def _between_rounds(self, classifier: IndKNNClassifier, present: bool, damage: Damage) -> None:
        ledger = classifier._shard.ledger
        if damage.skips_charges:
            ledger.remaining[:] = UNITS
        if not self.returns:
            return
        victims = self.world.victims
        classifier.erase(victims.subjects)
        if damage.refills:
            ledger._departed.clear()
        if present:
            classifier.add(victims.X, victims.y, victims.subjects)


def charged_block(classifier: IndKNNClassifier, queries: Floats) -> ChargedBlock:
    """Charge for queries as the classifier does, and return the release before its noise."""
    engine = classifier._engine
    integers = classifier._encoded(queries)
    noise = engine.schedule.multiplier * np.sqrt(engine.radius.expected(integers))
    release = engine.votes.release(noise)
    sums = engine.shard.charge_and_sum(release, integers, engine.radius.thresholds(integers))
    return ChargedBlock(release, sums)


def draw_from(classifier: IndKNNClassifier, noise: NoiseSource) -> None:
    """Let one fitted classifier draw from `noise` instead of its own."""
    engine = classifier._engine
    engine.votes.noise = noise
    if engine.count is not None:
        engine.count._noise = noise


class VotesTrial(AuditTrial):
    """Noisy votes of universes, scored by the likelihood ratio of all votes of a universe.

    Parameters
    ----------
    visits : Visits
        The worlds.
    world : str
        Where the subject stands, in words.
    damages : mapping of str to Damage
        Broken versions to try as well, by name.
    damage : Damage
        What is broken in this version.
    """

    mechanism = "Ind-KNN votes"

    def __init__(
        self, visits: Visits, world: str, damages: Mapping[str, Damage], damage: Damage = HONEST
    ) -> None:
        self.world = world
        self._visits, self._damages, self._damage = visits, damages, damage
        self.claim = ind_knn_claim(visits.parameters)
        self._absent, there = (visits.sums(present, damage) for present in (False, True))
        self._shift = there - self._absent
        self._length = np.square(self._shift).sum(axis=(0, 2))

    def play(self, present: bool) -> Floats:
        """Return a score for each universe of one data set: about 0 without, 1 with the subject."""
        votes = self._visits.answers(present, self._damage)
        away = votes.reshape(len(votes), REPEATS, *self._shift.shape[1:]) - self._absent[:, None]
        gain = (away * self._shift[:, None]).sum(axis=(0, 3))
        return np.asarray(gain / self._length).ravel()

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on every broken version."""
        return {
            name: type(self)(self._visits, self.world, {}, damage)
            for name, damage in self._damages.items()
        }


class LabelsTrial(AuditTrial):
    """Labels of universes, scored by the likelihood ratio of whether the subject's class won."""

    mechanism = "Ind-KNN labels"

    def __init__(
        self, visits: Visits, world: str, damages: Mapping[str, Damage], damage: Damage = HONEST
    ) -> None:
        self.world = world
        self._visits, self._damages, self._damage = visits, damages, damage
        self.claim = ind_knn_claim(visits.parameters)
        wins = [
            _chances_of_first(visits.sums(present, damage) * damage.noise_divisor)
            for present in (False, True)
        ]
        self._won = np.log(wins[1] / wins[0])
        self._lost = np.log((1 - wins[1]) / (1 - wins[0]))

    def play(self, present: bool) -> Floats:
        """Return the log likelihood ratio of each universe's labels."""
        labels = self._visits.answers(present, self._damage)
        won = labels.reshape(len(labels), REPEATS, -1) == 0
        gain = np.where(won, self._won[:, None], self._lost[:, None]).sum(axis=0)
        return np.asarray(gain).ravel()

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on every broken version."""
        return {
            name: LabelsTrial(self._visits, self.world, {}, damage)
            for name, damage in self._damages.items()
        }


class CountsTrial(AuditTrial):
    """Private counts of neighbours: the noisy count itself, though only its noise scale leaves.

    Who sees the votes learns less about the count than who sees the count.
    """

    mechanism = "Ind-KNN private count"
    world = "one subject, many records, all spent on one count"

    def __init__(self, visits: Visits, damage: Damage = HONEST) -> None:
        self._visits, self._damage = visits, damage
        self.claim = ind_knn_claim(visits.parameters)

    def play(self, present: bool) -> Floats:
        """Return noisy counts, in the subject's records: about 0 without it, 1 with it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            classifier = self._visits.fitted(present, self._damage)
        engine = classifier._engine
        counter = engine.count
        assert counter is not None  # noqa: S101 (counts are private here)
        queries = classifier._encoded(self._visits.world.queries)
        thresholds = engine.radius.thresholds(queries)
        (rounds,) = engine.shard.rounds(queries, thresholds, together=True)
        counter.price(len(queries))
        counts = rounds.charge_counts(counter)
        drawn = np.concatenate([counter.publish(counts) for _ in range(REPEATS)])
        return np.asarray((drawn - _COMPANY) / _MANY)

    def controls(self) -> Mapping[str, AuditTrial]:
        """Return the same attack on a count with half of its noise."""
        return {"noise halved": CountsTrial(self._visits, Damage(noise_divisor=2))}


def _chances_of_first(votes: Floats) -> Floats:
    """Return how likely the first class has the most noisy votes; `votes` in noise scales."""
    leads = votes[..., :1] - votes[..., 1:]
    wins = np.zeros(votes.shape[:-1])
    for node, weight in zip(_NODES.tolist(), _NODE_WEIGHTS.tolist(), strict=True):
        wins += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(wins / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)


# ---------------------------------------------------------------- claims


def ind_knn_claim(parameters: Mapping[str, Any]) -> Claim:
    """Return what an Ind-KNN classifier of these parameters promises."""
    settings = IndKNNSettings.of(IndKNNClassifier(**parameters))
    if settings.label_only:
        return RenyiClaim(settings.charges.target, settings.delta)
    slack = SLACK_SHARE * settings.delta if settings.accounting == "gdp" else 0.0
    return GaussianClaim(math.sqrt(2 * settings.spendable), settings.delta, slack)


# ---------------------------------------------------------------- worlds


@dataclass(frozen=True)
class IndKNNAudit:
    """What is known of the classifier that is audited; all of it is public.

    Attributes
    ----------
    n_classes : int
        c.
    epsilon, delta : float
        The guarantee.
    noise : float
        Noise on every class in votes; larger needs more records and time.
    n_neighbors : int
        k.
    further : mapping
        Other parameters of the estimator, such as its kernel or accounting.
    """

    n_classes: int = 10
    epsilon: float = 1.0
    delta: float = 1e-5
    noise: float = NOISE
    n_neighbors: int = NEIGHBORS
    further: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self, count: int, release: str, **more: Any) -> dict[str, Any]:
        """Return parameters under which each universe's reference point sets its radius."""
        k = self.n_neighbors
        multiplier = self.noise / math.sqrt(k)
        return {
            "classes": range(self.n_classes), "epsilon": self.epsilon, "delta": self.delta,
            "n_queries": 100_000, "n_neighbors": k, "n_records": k * count,
            "noise_multiplier": multiplier, "release": release, **self.further, **more,
        }  # fmt: skip

    def votes(self) -> VotesTrial:
        """Return the attack on somebody who spends everything on one answer."""
        mu = self.budget_mu("votes")
        records = math.ceil(1.01 * self.noise * mu) + 1
        count = _count_for(records + 1)
        victim: list[Placed] = [(1.0, 0)] * records
        world = universes(victim, [(0.9, 1)], count=count)
        visits = Visits(self.parameters(count, "votes"), world, rounds=5)
        damages = {
            "noise halved": Damage(noise_divisor=2),
            "charge skipped": Damage(skips_charges=True),
            "subjects forgotten": Damage(forgets_subjects=True),
        }
        return VotesTrial(visits, "one subject, many records, all spent on one answer", damages)

    def two_labels(self) -> VotesTrial:
        """Return the attack on somebody whose records have two labels."""
        records = math.ceil(1.01 * self.noise * self.budget_mu("votes")) + 1
        count = _count_for(2 * records + 2)
        victim: list[Placed] = [(1.0, 0), (0.97, 1)] * records
        world = universes(victim, [(0.9, 1)] * 2, count=count)
        visits = Visits(self.parameters(count, "votes"), world, rounds=5)
        return VotesTrial(
            visits, "one subject, records of two labels, among others", {
                "charge skipped": Damage(skips_charges=True),
            },
        )  # fmt: skip

    def leaves_and_returns(self) -> VotesTrial:
        """Return the attack on somebody who leaves and returns; a budget lasts 1.25 answers."""
        noise = math.sqrt(1.25) / self.budget_mu("votes")
        world = universes([(1.0, 0)], [(0.9, 1)] * 3, count=64)
        audit = replace(self, noise=noise)
        visits = Visits(audit.parameters(64, "votes"), world, rounds=6, returns=True)
        return VotesTrial(
            visits, "one record, leaves and returns, budget nearly spent", {
                "refilled on return": Damage(refills=True),
                "noise halved": Damage(noise_divisor=2),
            },
        )  # fmt: skip

    def labels(self) -> LabelsTrial:
        """Return the attack on somebody who spends everything on a few labels, behind rivals."""
        race = _best_race(self._settings("label"))
        audit = replace(self, noise=max(1, round(NOISE * race.shift)) / race.shift)
        victim: list[Placed] = [(1.0, 0)] * round(audit.noise * race.shift)
        rivals = round(race.offset * audit.noise / 0.9)
        others: list[Placed] = [(0.9, c) for c in range(1, self.n_classes) for _ in range(rivals)]
        count = _count_for(len(victim) + len(others) + 1)
        world = universes(victim, others or [(0.1, 1)], count=count)
        visits = Visits(audit.parameters(count, "label"), world, rounds=race.rounds + 1)
        world_words = f"one subject, all spent on {race.rounds} of the labels, behind equal rivals"
        return LabelsTrial(visits, world_words, {})

    def labels_alone(self) -> LabelsTrial:
        """Return the attack on somebody alone, asked for twelve times what its budget pays."""
        shift = _affordable_shift(self._settings("label"), _LASTS)
        audit = replace(self, noise=1 / shift)
        world = universes([(1.0, 0)], [(0.1, 1)], count=64)
        visits = Visits(audit.parameters(64, "label"), world, rounds=12 * _LASTS)
        return LabelsTrial(
            visits, "one record, alone, asked long after its budget is spent", {
                "charge skipped": Damage(skips_charges=True),
                "noise a third": Damage(noise_divisor=3),
            },
        )  # fmt: skip

    def counts(self) -> CountsTrial:
        """Return the attack on a private count: somebody with many records spends all on one."""
        made = IndKNNClassifier.zhu2023(
            range(self.n_classes), self.epsilon, self.delta, 3 * _MANY**2 + 1, tau=0.8,
            noise_multiplier=1.0,
        )  # fmt: skip
        world = universes([(1.0, 0)] * _MANY, [(0.9, 0)] * _COMPANY, count=64)
        parameters = {**made.get_params(), "n_records": 64 * _COMPANY}
        del parameters["interactions"]
        return CountsTrial(Visits(parameters, world, rounds=1))

    def _settings(self, release: str) -> IndKNNSettings:
        return IndKNNSettings.of(IndKNNClassifier(**self.parameters(1, release)))

    def budget_mu(self, release: str) -> float:
        """Return the Gaussian shift that a whole budget stands for, sqrt(2 B)."""
        return math.sqrt(2 * self._settings(release).spendable)


@dataclass(frozen=True)
class Race:
    """How labels are attacked: so many of them, at this shift, rivals so far ahead (in noise)."""

    rounds: int
    shift: float
    offset: float


def _best_race(settings: IndKNNSettings) -> Race:
    """Return the race that proves most of the claim, in as many runs as an audit may have."""
    races = [
        Race(rounds, _affordable_shift(settings, rounds), float(offset))
        for rounds in (1, 2, 4, 8, 16)
        for offset in _OFFSETS
    ]
    return max(races, key=lambda race: _promise(race, settings))


def _affordable_shift(settings: IndKNNSettings, labels: int) -> float:
    """Return the shift in noise scales that an equal part of a budget pays for in one label."""
    charges = settings.charges
    costs = np.array([charges.share(float(shift)) * shift**2 / 2 for shift in _SHIFTS])
    return float(_SHIFTS[max(0, int(np.searchsorted(costs, charges.zcdp / labels)) - 1)])


def _promise(race: Race, settings: IndKNNSettings) -> float:
    """Return about which share of the claim an audit of a race would prove."""
    claim = RenyiClaim(settings.charges.target, settings.delta)
    votes = np.zeros((2, len(settings.classes)))
    votes[:, 1:], votes[1, 0] = race.offset, race.shift
    chances = _chances_of_first(votes)
    best = 0.0
    for wins in range(race.rounds):
        absent, present = (float(binom.sf(wins, race.rounds, p)) for p in chances)
        rates = RateBounds(
            *(rate - sign * 5 * math.sqrt(rate * (1 - rate) / _EXPECTED_RUNS)
              for rate, sign in ((present, 1), (absent, -1)))
        )  # fmt: skip
        if 0 < rates.false_alarms < rates.found < 1:
            best = max(best, rates.mu / claim.mu(rates.false_alarms))
    return best


def _count_for(records: int) -> int:
    return max(32, min(128, _RECORDS // records))
