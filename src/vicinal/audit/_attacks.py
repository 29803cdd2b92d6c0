"""Attacks by the likelihood ratio test: on noisy sums, on labels, and on planned releases.

A *world* is a made-up data set with or without one subject; `present` is whether the subject is in
it. A *run* is one execution of the attacked mechanism in a world. Likelihood ratios are those of
the world with the subject over that without. A *control* is an attack on a version with a fault.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom
from sklearn.dummy import DummyClassifier

from vicinal.arrays import AnyArray, Bools, Floats, Ints
from vicinal.audit.claims import Claim, PlanClaim, create_ind_knn_claim
from vicinal.audit.interactions import AuditInteraction, InjectedFault, TwoWorlds, select_faults
from vicinal.audit.schedule import Attack
from vicinal.baselines.noisy_sgd import NoisySGDClassifier
from vicinal.baselines.pate import PATEClassifier
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.mechanisms.private_knn import SampledNeighbourSearch
from vicinal.neighbours.kernels import IntegerMatrix
from vicinal.neighbours.poisson_knn import NearestRows
from vicinal.neighbours.scan import NeighbourLists
from vicinal.predictors.private_knn import PrivateKNNClassifier
from vicinal.testing import Transcript, World, noise_from

_MAX_BLOCK_RUNS = 1 << 12  # maximal number of runs in a block, after which the clock is read
_MAX_BLOCK_VALUES = 1 << 18  # maximal number of noisy values in a block of more than 64 runs

CERTAIN_LOG_RATIO = 1e3
"""Score of a run with the subject if an output that must be equal in both worlds differs. It stands
for an infinite log likelihood ratio."""

_HERMITE_NODES, _HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(81)
"""Gauss-Hermite quadrature for integrals over one standard Gaussian variable."""


class SumsAttack(Attack):
    """Attack on all noisy sums of an interaction, or on the labels that follow from its votes.

    The private sums of both worlds are recorded once. Each run adds fresh noise to them, and its
    score is the log likelihood ratio of all released values.

    - `mechanism`, `scenario`: name of the mechanism, and description of the data, for reports.
    - `interaction`: the attacked interaction, with one copy of the attack.
    - `faults`: faults of the controls, by name.
    - `claim`: the claim to test. Default: that of the interaction's plan.
    """

    def __init__(
        self,
        mechanism: str,
        interaction: AuditInteraction,
        scenario: str,
        faults: Mapping[str, InjectedFault],
        claim: Claim | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.scenario = scenario
        plan = interaction.plan
        self.claim = claim or create_ind_knn_claim(plan)
        self._interaction = interaction
        self._faults = faults
        self._label_charges = plan.label_charges if plan.label_only else None
        self._reset_fault_state()

    def _reset_fault_state(self) -> None:
        """Record the private sums with and without the subject, under the injected fault.

        Then set the runs per block, the total shift, and which sums are votes released as labels.
        """
        self._worlds = TwoWorlds.from_interaction(self._interaction, self._fault)
        n_values = sum(release.absent_sums.size for release in self._worlds.releases)
        self._n_block_runs = max(64, min(_MAX_BLOCK_RUNS, _MAX_BLOCK_VALUES // max(1, n_values)))
        n_classes = len(self._interaction.parameters.get("classes", ()))
        self.total_shift_mu = self._worlds.compute_total_shift(self._label_charges, n_classes)
        # Gradients have one row for each feature, so a single row of n_classes values holds votes.
        self._is_label_release = [
            self._label_charges is not None and release.absent_sums.shape == (1, n_classes)
            for release in self._worlds.releases
        ]

    def compute_scores(self, present: bool) -> Floats:
        """Return the log likelihood ratio of all released values, for each of a block of runs."""
        worlds = self._worlds
        outputs = worlds.sample_outputs(present, self._fault.create_noise(), self._n_block_runs)
        has_leak = present and not worlds.has_equal_outputs
        log_ratios = np.full(self._n_block_runs, CERTAIN_LOG_RATIO if has_leak else 0.0)
        for release, noisy, is_label in zip(
            worlds.releases, outputs, self._is_label_release, strict=True
        ):
            absent, _, scale = release
            shift = release.shift
            if is_label:
                labels = noisy.argmax(axis=2)
                log_ratios += compute_label_log_ratios(labels, absent / scale, shift)
            else:
                deviations = (noisy - absent) / scale - shift / 2
                log_ratios += (deviations * shift).reshape(self._n_block_runs, -1).sum(axis=1)
        return log_ratios


def compute_label_log_ratios(labels: Ints, votes: Floats, shift: Floats) -> Floats:
    """Return the log likelihood ratio of each run's released labels, summed over queries, (runs,).

    It is the ratio of the world with the subject to that without. The attacker uses whether a label
    is the first class, for which the subject votes.

    - `labels` (int (runs, q)): released class indices.
    - `votes`, `shift` (float64 (q, c)): votes without the subject, and their change by the subject,
      in units of the noise scale.
    """
    absent_probability = compute_first_class_probabilities(votes)
    present_probability = compute_first_class_probabilities(votes + shift)
    first_ratio = np.log(present_probability / absent_probability)
    other_ratio = np.log((1 - present_probability) / (1 - absent_probability))
    return np.asarray(np.where(labels == 0, first_ratio, other_ratio).sum(axis=1))


def compute_first_class_probabilities(votes: Floats) -> Floats:
    """Return the probability that the first class has the largest noisy vote, (q,).

    `votes`, float64 (q, c): votes before noise, in units of the noise scale.
    """
    leads = votes[..., :1] - votes[..., 1:]
    integrals = np.zeros(votes.shape[:-1])
    for node, weight in zip(_HERMITE_NODES.tolist(), _HERMITE_WEIGHTS.tolist(), strict=True):
        integrals += weight * np.exp(log_ndtr(node + leads).sum(axis=-1))
    return np.clip(integrals / math.sqrt(2 * math.pi), 1e-12, 1 - 1e-12)


def _select_sampling_faults(gamma: float, *names: str) -> dict[str, InjectedFault]:
    """Return the faults with these `names` that change a mechanism with sampling rate `gamma`."""
    faults = select_faults(*names)
    if gamma == 1:
        # Without sampling, including every subject is no fault.
        faults.pop("everybody sampled", None)
    return faults


# ---------------------------------------------------------------- noisy gradients of a plan

_N_SUBJECTS = 1024
"""Attacked subjects in one training. Each is an independent run of the attack."""


class NoisySGDAttack(Attack):
    """Attack on all noisy gradients of a training run, by subjects with a feature of their own.

    Each subject has two records: opposite features with different labels. Their gradients cancel in
    the bias, which all subjects share. The remaining gradient of a subject lies along its own
    feature and is clipped to the bound, so one training is an independent run for each subject.

    - `gamma`: sampling probability of each subject in a step.
    - `delta`: delta of the claim.
    """

    mechanism = "NoisySGD"
    scenario = "gradients of one subject, alone on its feature"

    def __init__(self, gamma: float = 0.15, delta: float = 1e-5) -> None:
        self._classifier = NoisySGDClassifier(
            range(2),
            epsilon=8.0,
            delta=delta,
            n_steps=3,
            sampling_rate=gamma,
            n_records=10 * _N_SUBJECTS,
            interactions="public",
        )
        self._gamma = gamma
        self._faults = _select_sampling_faults(
            gamma, "noise halved", "subjects forgotten", "everybody sampled", "twice the plan"
        )
        self.claim = PlanClaim(self._classifier.plan())

    def compute_scores(self, present: bool) -> Floats:
        """Train once, and return the log likelihood ratio of each attacked subject, (runs,)."""
        axes = np.eye(_N_SUBJECTS, _N_SUBJECTS + 1)
        if not present:
            axes = axes[:0]
        # One further subject is in both worlds, so that there is always a record to train on.
        background = np.eye(1, _N_SUBJECTS + 1, _N_SUBJECTS)
        X = np.concatenate([axes, -axes, background])
        y = np.repeat([0, 1, 0], [len(axes), len(axes), 1])
        subject_ids = np.arange(len(axes))
        ids = np.concatenate([subject_ids, subject_ids, [_N_SUBJECTS]])
        transcript = Transcript(self._fault.create_noise())
        with noise_from(transcript), self._fault.inject():
            self._classifier.fit(X, y, None if self._fault.ignores_subject_ids else ids)
        sigma = self._classifier.noise_multiplier_
        # Without sampling (gamma = 1) every subject takes part in every step.
        log_absent = -math.inf if self._gamma == 1 else math.log1p(-self._gamma)
        log_ratios = np.zeros(_N_SUBJECTS)
        for _, scale, noisy in transcript.released:
            # Projection on each subject's gradient: class 1 minus class 0, in noise scales.
            projections = (noisy[:_N_SUBJECTS, 1] - noisy[:_N_SUBJECTS, 0]) / (math.sqrt(2) * scale)
            gaussian_ratios = (projections - 0.5 / sigma) / sigma
            log_ratios += np.logaddexp(math.log(self._gamma) + gaussian_ratios, log_absent)
        return log_ratios


# ---------------------------------------------------------------- plans of Private-kNN and PATE
# All queries of these mechanisms cost the same, and their only shared state is a counter. So one
# fitted classifier carries out a plan of q queries thousands of times, and these runs are
# independent. The distribution of the released values is known in both worlds, and the attack is
# the likelihood ratio test of all released values.

_RUNS_PER_BLOCK = 1 << 12
"""Number of runs in a block of an attack whose runs share one fitted classifier."""

_SIGMA = 0.7
"""Noise on votes, as a standard deviation in votes, at which attacks on samples are strongest."""

_MAX_SMALL_SAMPLE_PROBABILITY = 1e-9
"""Largest probability that a Poisson sample holds fewer than k background subjects."""

_PLANNED_QUERIES = 1 << 22  # number of queries for which one fitted classifier is planned

_FITS_PER_BLOCK = 64
_PLAN_REPETITIONS = 4
"""If each run has a classifier of its own: the number of runs in a block, and how many times the
planned number of queries is requested in a run."""


@dataclass(frozen=True)
class AnswerDistribution:
    """The distribution of the answer to one query, in the worlds with and without the subject.

    - `votes` (float64 (c,)): votes without the subject.
    - `vote_change` (float64 (c,)): change of the votes by the subject if it takes part.
    - `gamma`: probability with which the subject takes part (Poisson sampling).
    - `sigma`: standard deviation of the noise on each vote, in votes.
    - `label_only`: whether the label of two classes is released instead of the noisy votes.
    - `screen`: threshold and noise standard deviation of the screening, in votes, or None.
    """

    votes: Floats
    vote_change: Floats
    gamma: float
    sigma: float
    label_only: bool = False
    screen: tuple[float, float] | None = None

    def compute_log_ratios(self, passed: Bools, answers: AnyArray) -> Floats:
        """Return the log likelihood ratio of each of q independent executions of the query, (q,).

        - `passed`, bool (q,): whether the execution passed the screening; all true without one.
        - `answers`: noisy votes, float64 (p, c), or labels, int (p,), of the p that passed.
        """
        log_ratios = np.zeros(len(passed))
        if self.screen is not None:
            threshold, screen_sigma = self.screen
            absent_maximum = self.votes.max()
            present_maximum = (self.votes + self.vote_change).max()
            absent_probability = float(ndtr((absent_maximum - threshold) / screen_sigma))
            sampled_probability = float(ndtr((present_maximum - threshold) / screen_sigma))
            log_ratios += self._compute_event_log_ratios(
                passed, absent_probability, sampled_probability
            )
        log_ratios[passed] += self._compute_answer_log_ratios(answers)
        return log_ratios

    def _compute_answer_log_ratios(self, answers: AnyArray) -> Floats:
        """Return the log likelihood ratio, (p,), of p noisy votes, (p, c), or labels, (p,)."""
        if self.label_only:
            return self._compute_event_log_ratios(
                answers == 0,
                self._compute_first_label_probability(self.votes),
                self._compute_first_label_probability(self.votes + self.vote_change),
            )
        deviations = answers - self.votes - self.vote_change / 2
        gaussian_ratios = deviations @ self.vote_change / self.sigma**2
        log_excluded = math.log(1 - self.gamma) if self.gamma < 1 else -math.inf
        return np.logaddexp(math.log(self.gamma) + gaussian_ratios, log_excluded)

    def _compute_first_label_probability(self, votes: Floats) -> float:
        """Return the probability that the first of two classes with `votes` (2,) is the label."""
        return float(ndtr((votes[0] - votes[1]) / (math.sqrt(2) * self.sigma)))

    def _compute_event_log_ratios(
        self, events: Bools, absent_probability: float, sampled_probability: float
    ) -> Floats:
        """Return the log likelihood ratio of whether an event occurred, for each repetition, (q,).

        `events`, bool (q,): whether it occurred. `absent_probability`, `sampled_probability`: its
        probabilities without the subject, and with the subject in the Poisson sample.
        """
        present = (1 - self.gamma) * absent_probability + self.gamma * sampled_probability
        absent = min(max(absent_probability, 1e-300), 1 - 1e-16)
        present = min(max(present, 1e-300), 1 - 1e-16)
        return np.where(events, math.log(present / absent), math.log((1 - present) / (1 - absent)))


class FixedPlanAttack(Attack):
    """Attack on a plan of a few queries, which one fitted classifier carries out many times.

    - `mechanism`, `scenario`: name of the mechanism, and description of the data, for reports.
    - `classifier` (Private-kNN or PATE classifier): not fitted; its plan is that of one run.
    - `build_records(present)`: returns the made-up records of one world.
    - `distribution`: distribution of each answer in both worlds.
    - `faults`: faults of the controls, by name.
    - `exceeds_plan`: whether each run fits a classifier of its own and queries it until it refuses.
    """

    def __init__(
        self,
        mechanism: str,
        scenario: str,
        classifier: Any,
        build_records: Callable[[bool], World],
        distribution: AnswerDistribution,
        faults: Mapping[str, InjectedFault],
        *,
        exceeds_plan: bool = False,
    ) -> None:
        self.mechanism = mechanism
        self.scenario = scenario
        self.claim = PlanClaim(classifier.plan())
        self._classifier = classifier
        self._build_records = build_records
        self._distribution = distribution
        self._faults = faults
        self._exceeds_plan = exceeds_plan
        self._reset_fault_state()

    def _reset_fault_state(self) -> None:
        """Discard the fitted classifiers: they may have been fitted under another fault."""
        self._fitted_classifiers: dict[bool, Any] = {}

    def compute_scores(self, present: bool) -> Floats:
        """Return the log likelihood ratio of each run's answers, summed over queries, (runs,)."""
        n_queries = self._classifier.n_queries
        if self._exceeds_plan:
            return np.array([self._score_until_refusal(present) for _ in range(_FITS_PER_BLOCK)])
        n_block_queries = _RUNS_PER_BLOCK * n_queries
        fitted = self._fitted_classifiers.get(present)
        if fitted is None or fitted._plan.n_queries - fitted.n_asked_ < n_block_queries:
            fitted = self._fit_classifier(present, _PLANNED_QUERIES)
            self._fitted_classifiers[present] = fitted
        scores = self._score_answers(fitted, n_block_queries).reshape(_RUNS_PER_BLOCK, n_queries)
        return np.asarray(scores.sum(axis=1))

    def _score_until_refusal(self, present: bool) -> float:
        """Fit a classifier, query it until it refuses, and return the score of this run."""
        n_queries = self._classifier.n_queries
        score = 0.0
        fitted = self._fit_classifier(present, n_queries)
        for _ in range(_PLAN_REPETITIONS):
            try:
                score += float(self._score_answers(fitted, n_queries).sum())
            except PrivacyRefused:
                break
        return score

    def _score_answers(self, fitted: Any, n_queries: int) -> Floats:
        """Query a fitted classifier at the origin; return the answers' log likelihood ratios.

        `n_queries`: number of queries, and of the ratios, float64 (n_queries,).
        """
        queries = np.zeros((n_queries, fitted.n_features_in_))
        return self._distribution.compute_log_ratios(*fitted._release_answers(queries))

    def _fit_classifier(self, present: bool, n_queries: int) -> Any:
        """Return a classifier fitted in one world, planned for `n_queries` queries."""
        parameters = self._classifier.get_params(deep=False) | {
            "n_queries": n_queries,
            "interactions": "public",
        }
        X, y, ids = self._build_records(present)
        with noise_from(self._fault.create_noise()), self._fault.inject():
            classifier = type(self._classifier)(**parameters)
            fitted = classifier.fit(X, y, None if self._fault.ignores_subject_ids else ids)
        if self._fault.samples_with_replacement:
            self._score_answers(fitted, 1)  # The first query creates the sampler.
            sampler = fitted._release.nearest
            fitted._release.nearest = ReplacementSample(
                sampler.knn, sampler.gamma, sampler._sampler
            )
        return fitted


# ---------------------------------------------------------------- Private-kNN


def _build_private_knn_records(present: bool, k: int, gamma: float) -> World:
    """Return records at distances 1, 2, ... to the query, all of class 1 but the subject's.

    The subject's three records, if it is `present`, are the nearest and have class 0. `k` of the
    subjects, sampled with probability `gamma`, vote.
    """
    # Nearly every sample holds k background subjects. The attacker's likelihood ratio is not exact
    # for a smaller sample, but the lower bounds hold for any score.
    n_background = k
    while binom.cdf(k - 1, n_background, gamma) > _MAX_SMALL_SAMPLE_PROBABILITY:
        n_background += math.ceil(1 / gamma)
    n_victim_records = 3 if present else 0
    distances = np.arange(1, n_victim_records + n_background + 1)
    features = distances[:, None] * np.array([[1.0, 0.0]])
    labels = np.repeat([0, 1], [n_victim_records, n_background])
    ids = np.concatenate([np.zeros(n_victim_records, dtype=int), 1 + np.arange(n_background)])
    return World(features, labels, ids)


_SCREENS = {"screening": (2 - 1.5 * _SIGMA, _SIGMA), "screening+votes": (2 - 1.5 * 1.5, 1.5)}
"""Threshold and noise standard deviation of the screening, in votes, by attack.

The two unanimous votes lie 1.5 standard deviations above the threshold.
"""

_PRIVATE_KNN: dict[str, tuple[str, int, float, tuple[str, ...]]] = {
    "votes": ("votes, sampled at {gamma:g}, subject next", 2, _SIGMA,
         ("noise halved", "everybody sampled", "subjects forgotten")),
    "all": ("votes, everybody takes part", 3, 2.0, ("drawn with replacement", "noise halved")),
    "over_plan": ("votes, asked on when the plan is carried out", 3, 2.0, ("four times the plan",)),
    "labels": ("labels, one neighbour", 1, _SIGMA, ("everybody sampled",)),
    # The noise on votes is so large that only the screening is tested.
    "screening": ("screening, unanimous neighbours", 2, 1e6, ("everybody sampled",)),
    "screening+votes": ("screening, then votes of what passed", 2, _SIGMA,
                        ("noise halved", "everybody sampled")),
}  # fmt: skip
"""Scenario, number of neighbours k, noise on votes, and faults of the controls, by attack."""


def create_private_knn_attack(
    attack: str, gamma: float = 0.15, delta: float = 1e-5
) -> FixedPlanAttack:
    """Return an attack on Private-kNN: the subject replaces one of k unanimous neighbours.

    - `attack`: attacked releases: "votes" (of two queries; other attacks have one), "labels",
      "screening" (with noise that hides the votes), or "screening+votes"; "all" (votes, every
      subject is sampled) or "over_plan" (votes, queried beyond the plan).
    - `gamma`: sampling probability. It is 1 for the attacks "all" and "over_plan".
    - `delta`: delta of the claim.
    """
    scenario, k, sigma, fault_names = _PRIVATE_KNN[attack]
    gamma = 1.0 if attack in ("all", "over_plan") else gamma
    label_only = attack == "labels"
    screen = _SCREENS.get(attack)
    threshold, sigma_screen = screen or (None, None)
    classifier = PrivateKNNClassifier(
        range(2),
        k,
        gamma,
        sigma_votes=sigma,
        sigma_screen=sigma_screen,
        threshold=threshold,
        n_queries=2 if attack == "votes" else 1,
        delta=delta,
        norm_bound=1e4,
        release="label" if label_only else "votes",
    )
    votes = np.array([0.0, float(k)])
    vote_change = np.array([1.0, -1.0])
    distribution = AnswerDistribution(votes, vote_change, gamma, sigma, label_only, screen)
    return FixedPlanAttack(
        "Private-kNN",
        scenario.format(gamma=gamma),
        classifier,
        partial(_build_private_knn_records, k=k, gamma=gamma),
        distribution,
        _select_sampling_faults(gamma, *fault_names),
        exceeds_plan=attack == "over_plan",
    )


# ---------------------------------------------------------------- PATE


def _build_pate_records(present: bool) -> World:
    """Return four records of class 1 of the subject, if `present`, and one of another subject."""
    n_victim_records = 4 if present else 0
    labels = np.repeat([1, 0], [n_victim_records, 1])
    ids = np.repeat([0, 1], [n_victim_records, 1])
    return World(np.zeros((n_victim_records + 1, 1)), labels, ids)


def create_pate_attack(delta: float, *, exceeds_plan: bool = False) -> FixedPlanAttack:
    """Return the attack on the noisy votes of PATE's teachers, with a claim at `delta`.

    All teachers vote for class 0, even without records, but the subject's teacher for class 1.
    `exceeds_plan`: whether each run fits teachers of its own and queries them until they refuse;
    otherwise each run has two queries.
    """
    n_teachers = 3 if exceeds_plan else 50
    sigma = 2.0
    classifier = PATEClassifier(
        range(2),
        n_teachers,
        sigma_votes=sigma,
        teacher=DummyClassifier(strategy="constant", constant=1),
        n_queries=2,
        delta=delta,
    )
    votes = np.array([float(n_teachers), 0.0])
    distribution = AnswerDistribution(votes, np.array([-1.0, 1.0]), 1.0, sigma)
    scenario = "votes, a teacher that the subject decides" + (", asked on" if exceeds_plan else "")
    faults = ("four times the plan",) if exceeds_plan else ("noise halved", "subjects forgotten")
    return FixedPlanAttack(
        "PATE",
        scenario,
        classifier,
        _build_pate_records,
        distribution,
        select_faults(*faults),
        exceeds_plan=exceeds_plan,
    )


# ---------------------------------------------------------------- faulty sampling


class ReplacementSample(SampledNeighbourSearch):
    """A sampler with an injected fault: samples have a fixed size and are drawn with replacement.

    A subject that is sampled several times votes several times.
    """

    def draw_nearest(
        self,
        queries: IntegerMatrix,
        candidates: NeighbourLists | None,  # noqa: ARG002 (fixed signature)
    ) -> NearestRows:
        """Return the first rows of the k nearest subjects in each query's sample, int32 (q, k).

        `queries`, (q, d): only their number q is used, since rows are stored in the order of their
        distance to the only query point. `candidates` are not used: any row can be sampled.
        """
        subjects, first_rows = np.unique(self.knn.slots, return_index=True)
        sample_size = round(self.gamma * len(subjects))
        n_queries = len(queries)
        sample = public_draws().integers(0, len(first_rows), (n_queries, sample_size))
        nearest_rows = np.sort(first_rows[sample], axis=1)[:, : self.knn.k]
        return np.ascontiguousarray(nearest_rows, dtype=np.int32)
