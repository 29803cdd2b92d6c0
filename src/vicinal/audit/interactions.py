"""Interactions with the installed system, recorded in two worlds: with and without one subject.

The system is entered through its public interfaces: an estimator, a store, or a cluster of shards.

An interaction is run twice. The first run is without the subject; its noisy releases are recorded.
The second run is with the subject, and every release is replaced by the recorded one. So both
worlds have the same transcript, and three properties are checked exactly, without statistics:

- The shift of every private sum by the subject, in units of the noise scale. The individual filter
  guarantees that the squared shifts add up to 2 B at most, for every transcript
  (mechanisms/votes.md). A missing charge makes the sum exceed 2 B.
- Whether noise scales, shapes and the number of releases depend on the transcript alone.
- Whether all outputs are equal, as they must be if they follow from noisy sums and public data.

For the statistical test, fresh noise of the installed mechanism is then added to the same sums.

One transcript may hold several independent copies of an attack, each with a *victim*: its attacked
subject. An *audience* is a group of recipients with a budget of its own. A `World` is a data set
(X, y, subject ids). `present`, bool or bool (n_copies,), is whether all victims, or the victim of
each copy, are in the data set. The method ``do_X(index, present)`` of a session carries out the
action "X", which has this index among all actions; unused arguments are called ``_``.
"""

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vicinal import testing
from vicinal.accounting.label_filter import ChargeTable
from vicinal.arrays import AnyArray, Bools, FloatMatrix, Floats, Floats32, Ints
from vicinal.distributed.coordinator import Coordinator
from vicinal.distributed.splitting import split
from vicinal.distributed.transports import local_transports
from vicinal.mechanisms.noise_sources import BernoulliSource, NoiseSource, create_noise_source
from vicinal.planning.plan import IndKNNPlan
from vicinal.predictors.ind_knn import IndKNNClassifier
from vicinal.predictors.ind_knn_base import IndKNNEstimator
from vicinal.store.store import Store

# ---------------------------------------------------------------- injected faults


@dataclass(frozen=True)
class InjectedFault:
    """A fault that makes the installed mechanism violate its claim; by default, no fault.

    A control of an audit is the same attack on a mechanism with a fault, which must be detected.

    - `noise_divisor`: noise scales are divided by it.
    - `charge_fault`: name of the error in the charges, one of :data:`CHARGE_FAULTS` or "memory not
      cleaned"; "" for correct charges.
    - `charge_kinds` (sequence of str): kinds of releases whose charges are wrong, of "votes",
      "counts", "training", "size", "evaluation" and "total" (of all audiences).
    - `refills_on_return`: an erased subject that is enrolled again has its full budget.
    - `refills_on_restart`: every subject has its full budget after a store is opened again.
    - `ignores_subject_ids`: every record is treated as a subject of its own.
    - `plan_factor`: the number of permitted releases is the planned number times this factor.
    - `includes_all_subjects`: Poisson sampling selects every subject.
    - `samples_with_replacement`: samples have a fixed size and are drawn with replacement.
    """

    noise_divisor: int = 1
    charge_fault: str = ""
    charge_kinds: Sequence[str] = testing.CHARGED
    refills_on_return: bool = False
    refills_on_restart: bool = False
    ignores_subject_ids: bool = False
    plan_factor: int = 1
    includes_all_subjects: bool = False
    samples_with_replacement: bool = False

    def create_noise(self) -> NoiseSource:
        """Return a new source of noise, at reduced scales if the fault reduces them."""
        if self.noise_divisor > 1:
            return testing.weak_noise(self.noise_divisor)
        return create_noise_source()

    @contextmanager
    def inject(self) -> Iterator[None]:
        """Inject the faults in charges, plans and sampling into all code that runs inside."""
        with ExitStack() as stack:
            if self.charge_fault:
                stack.enter_context(testing.charges_broken(self.charge_fault, self.charge_kinds))
            if self.plan_factor > 1:
                stack.enter_context(testing.multiply_planned_releases(self.plan_factor))
            if self.includes_all_subjects:
                stack.enter_context(testing.coins_from(InclusionOfAll()))
            yield


NO_FAULT = InjectedFault()

CHARGE_FAULTS = tuple(testing.CHARGE_FAULTS)
"""Names of the faults in the charges of subjects. "Not stopped": subjects without remaining budget
still contribute; "stopped late": only subjects with a budget of exactly 0 are stopped."""

# The names are values of the JSON reports.
_FAULTS = {
    **{name: InjectedFault(charge_fault=name) for name in (*CHARGE_FAULTS, "memory not cleaned")},
    **{
        f"{kind} uncharged": InjectedFault(charge_fault="uncharged", charge_kinds=(kind,))
        for kind in ("counts", "training", "size", "evaluation", "total")
    },
    "training neither charged nor stopped": InjectedFault(
        charge_fault="neither charged nor stopped", charge_kinds=("training",)
    ),
    "refilled at restart": InjectedFault(refills_on_restart=True),
    "drawn with replacement": InjectedFault(samples_with_replacement=True),
    "everybody sampled": InjectedFault(includes_all_subjects=True),
    "noise a quarter": InjectedFault(noise_divisor=4),
    "noise a third": InjectedFault(noise_divisor=3),
    "noise halved": InjectedFault(noise_divisor=2),
    "refilled on return": InjectedFault(refills_on_return=True),
    "subjects forgotten": InjectedFault(ignores_subject_ids=True),
    "twice the plan": InjectedFault(plan_factor=2),
    "four times the plan": InjectedFault(plan_factor=4),
}


def select_faults(*names: str) -> dict[str, InjectedFault]:
    """Return the faults with these names, in this order."""
    return {name: _FAULTS[name] for name in names}


class InclusionOfAll(BernoulliSource):
    """A source of Bernoulli samples that are always 1: Poisson sampling includes every subject."""

    exact = False

    def bernoulli(self, probability: float, size: int) -> Bools:  # noqa: ARG002 (fixed signature)
        """Return `size` samples that are all true, bool (size,), for any `probability`."""
        return np.ones(size, dtype=np.bool_)


# ---------------------------------------------------------------- independent copies of an attack

CosineRecord = tuple[float, Any]
"""A record: its cosine to the query of its copy, and its class, number, or row of numbers."""

_CODE_BITS = 6
"""Query directions are the 2^6 signs of codewords of the Reed-Muller code RM(2, 6).

Two codewords differ in 16 signs at least, so two queries have a cosine of 1/2 at most. Radii are at
a cosine of .8, so no record is a neighbour of two queries.
"""

MAX_COPIES = 1 << 20
"""Maximal number of copies of an attack. 2^21 codewords begin with a plus."""

REFERENCE_COSINE = 0.8
"""Cosine of the only public reference point of a copy to its query; it sets the adaptive radius."""


@dataclass(frozen=True)
class AttackCopies:
    """A made-up data set of `n_copies` mutually independent copies of one attack.

    Each copy has a victim (the attacked subject), background subjects, one public reference point
    and one query. No record of a copy is a neighbour of the query of another copy.

    - `victims`: records of the victims, subject i in copy i.
    - `background`: records of the other subjects, which are present in both worlds.
    - `public` (array (n_copies, d)): public reference points.
    - `queries` (array (n_copies, d)): one query for each copy.
    """

    n_copies: int
    victims: testing.World
    background: testing.World
    public: FloatMatrix
    queries: FloatMatrix

    def build_records(self, present: Bools | bool) -> testing.World:
        """Return the background records, after those of the victims that are `present`."""
        is_included = np.broadcast_to(present, self.n_copies)[self.victims.subjects]
        # Victims come first, so that remaining state of theirs would affect the other subjects.
        columns = zip(self.victims, self.background, strict=True)
        return testing.World(
            *(np.concatenate([victim[is_included], background]) for victim, background in columns)
        )


@lru_cache(maxsize=1)
def _compute_codewords(n_copies: int) -> Floats32:
    """Return unit vectors with small cosines, float32 (n_copies, 64): codewords of RM(2, 6)."""
    # A codeword holds the values of a quadratic polynomial in six bits.
    bits = (np.arange(1 << _CODE_BITS)[:, None] >> np.arange(_CODE_BITS)) & 1
    # Monomials of degree 1 and 2; the square of a bit is the bit.
    monomials = [bits[:, i] * bits[:, j] for i in range(_CODE_BITS) for j in range(i + 1)]
    coefficients = (np.arange(n_copies)[:, None] >> np.arange(len(monomials))) & 1
    signs = 1 - 2 * ((coefficients @ np.array(monomials)) % 2)
    return np.asarray(signs / np.sqrt(signs.shape[1]), dtype=np.float32)


def compute_directions(n_copies: int, cosine: float) -> Floats32:
    """Return a unit vector for each copy at a `cosine` to its query, float32 (n_copies, 65)."""
    # The component orthogonal to the query lies along the last axis, which all copies share.
    remainder = np.full((n_copies, 1), np.sqrt(1 - cosine**2), dtype=np.float32)
    return np.concatenate([np.float32(cosine) * _compute_codewords(n_copies), remainder], axis=1)


def build_attack_copies(
    victim_records: Sequence[CosineRecord],
    background_records: Sequence[CosineRecord],
    n_copies: int = 1,
    *,
    duplicates_background: bool = True,
) -> AttackCopies:
    """Return a data set of `n_copies` independent copies of one attack.

    - `victim_records`: the records of the victim of each copy, relative to the copy's query.
    - `background_records`: the other records of each copy, at least one; each is a subject.
    - `duplicates_background`: whether the first background subject has its record twice.
    """
    records = list(background_records)
    ids = n_copies + np.arange(len(background_records) * n_copies)
    if duplicates_background:
        records = [background_records[0], *background_records]
        ids = np.concatenate([ids[:n_copies], ids])
    victim_ids = np.tile(np.arange(n_copies), len(victim_records))
    return AttackCopies(
        n_copies,
        _place_records(n_copies, victim_records, victim_ids),
        _place_records(n_copies, records, ids),
        compute_directions(n_copies, REFERENCE_COSINE),
        compute_directions(n_copies, 1.0),
    )


def _place_records(n_copies: int, records: Sequence[CosineRecord], ids: Ints) -> testing.World:
    """Return each record once for every copy; all copies of the first record come first.

    `records`: the records of one copy, as (cosine to its query, target). `ids`, int64
    (records * n_copies,): subject id of each returned record.
    """
    features = np.concatenate([compute_directions(n_copies, cosine) for cosine, _ in records])
    targets = np.repeat(np.array([target for _, target in records]), n_copies, axis=0)
    return testing.World(features, targets, ids)


# ---------------------------------------------------------------- one interaction in two worlds

_ACTION_ANGLE = 0.1
"""Angle in radians between the queries of successive actions.

A store returns the cached answer to a repeated query, so no query may be repeated.
"""


@dataclass(frozen=True)
class AuditInteraction:
    """A sequence of actions on a system that holds made-up records.

    - `parameters`: parameters of the estimator, or of the store and its audience.
    - `copies`: records, reference points and queries, of one or more copies of the attack.
    - `actions` (sequence of str): "query", "erase" (the victims), "reenrol" (the victims); for
      stores also "refresh" (train the model again), "restart", "evaluate", "open_audience" (a
      second one), "query_other" (for the second audience).
    - `estimator`: class of the estimator, for the interface "fit" and for the plan.
    - `interface`: "fit" (an estimator), "store", or "shards" (a cluster).
    """

    parameters: Mapping[str, Any]
    copies: AttackCopies
    actions: Sequence[str]
    estimator: type[IndKNNEstimator] = IndKNNClassifier
    interface: str = "fit"

    @property
    def plan(self) -> IndKNNPlan:
        """The plan that follows from all parameters but `epsilon_total`, which is the store's."""
        parameters = {**self.parameters}
        parameters.pop("epsilon_total", None)
        return IndKNNPlan.from_estimator(self.estimator(**parameters))

    def run(
        self, present: Bools | bool, fault: InjectedFault, transcript: testing.Transcript
    ) -> list[Any]:
        """Carry out all actions in one world; return all outputs, as plain values and arrays.

        - `present`: the victims that are in the data set.
        - `fault`: defect that is injected into the installed version for this run.
        - `transcript`: source of the noise, and record of all private sums and releases.
        """
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            # The attack makes more queries than planned. This warns, and the guarantee holds.
            warnings.simplefilter("ignore")
            stack.enter_context(testing.noise_from(transcript))
            stack.enter_context(fault.inject())
            records = self.copies.build_records(present)
            if fault.ignores_subject_ids:
                records = testing.World(records.X, records.y, np.arange(len(records.X)))
            session = INTERFACES[self.interface](self, records, fault)
            stack.callback(session.close)
            for index, action in enumerate(self.actions):
                getattr(session, f"do_{action}")(index, present)
            return session.outputs

    def create_queries(self, index: int) -> FloatMatrix:
        """Return the queries of the action at `index`, one for each copy, (n_copies, d).

        If there is a single copy, the opposite of its query follows, far from all records.
        """
        queries = self.copies.queries
        angle = 0.0 if self.interface == "fit" else index * _ACTION_ANGLE
        away = np.zeros_like(queries)
        away[:, -1] = -np.linalg.norm(queries, axis=1)
        turned = np.cos(angle) * queries + np.sin(angle) * away if angle else queries
        return np.concatenate([turned, -queries]) if len(queries) == 1 else turned


class _EstimatorSession:
    """A fitted estimator, and all outputs of the actions that were carried out on it.

    `interaction`: the actions and copies. `records`: the private records of one world. `fault` is
    injected into the installed version. Attributes: `system`, the estimator, store or coordinator;
    `outputs`, the list of outputs.
    """

    _add_options: Mapping[str, Any] = {}

    def __init__(
        self, interaction: AuditInteraction, records: testing.World, fault: InjectedFault
    ) -> None:
        self.interaction = interaction
        self.fault = fault
        self.outputs: list[Any] = []
        self.system = self._create_system(records)

    def close(self) -> None:
        """Close the system and remove its files; an estimator has none."""

    def _create_system(self, records: testing.World) -> Any:
        """Return a new system under attack: here an estimator, fitted to the private `records`."""
        parameters = self.interaction.parameters
        estimator = self.interaction.estimator(**parameters, interactions="public")
        public = self.interaction.copies.public
        return estimator.fit(records.X, records.y, records.subjects, public=public)

    def do_query(self, index: int, _: Bools | bool) -> None:
        """Answer the queries of the action; append the five arrays of the answers to `outputs`."""
        answers = self.system.query(self.interaction.create_queries(index))
        self.outputs += [
            answers.labels,
            answers.votes,
            answers.noise,
            answers.probabilities,
            answers.asked,
        ]

    def do_erase(self, _: int, __: Bools | bool) -> None:
        """Erase all victims; the fault `refills_on_return` also discards their budgets."""
        self.system.erase(np.unique(self.interaction.copies.victims.subjects))
        if self.fault.refills_on_return:
            testing.forget_erased_budgets(self.system)

    def do_reenrol(self, index: int, present: Bools | bool) -> None:
        """Add the erased victims that are `present` again, together with one new subject."""
        # The new subject is added in both worlds, because the number of additions is public.
        copies = self.interaction.copies
        victims = copies.victims
        new_features = copies.background.X[:1] * -1
        is_included = np.broadcast_to(present, copies.n_copies)[victims.subjects]
        self.system.add(
            np.concatenate([victims.X[is_included], new_features]),
            np.concatenate([victims.y[is_included], copies.background.y[:1]]),
            np.concatenate([victims.subjects[is_included], [10**6 + index]]),
            **self._add_options,
        )


class _StoreSession(_EstimatorSession):
    """A store in a temporary folder, and all outputs of the actions carried out on it."""

    # With an injected fault, a store may have lost the ids of erased subjects. It must accept them
    # as new ids, so that the attack can continue.
    _add_options: Mapping[str, Any] = {"ids_differ": True}

    def close(self) -> None:
        self.system.close()
        self._folder.cleanup()

    def _create_system(self, records: testing.World) -> Any:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "store"
        return Store.init(
            self._path,
            *records,
            public=self.interaction.copies.public,
            accept_weak_plan=True,
            **self.interaction.parameters,
        )

    def do_open_audience(self, _: int, __: Bools | bool) -> None:
        """Open a second audience, "other", with the plan of the first one."""
        shared = ("classes", "kernel", "norm_bound", "index", "epsilon_total")
        parameters = self.interaction.parameters
        plan = {name: value for name, value in parameters.items() if name not in shared}
        self.system.open_audience("other", accept_weak_plan=True, **plan)

    def do_query_other(self, index: int, present: Bools | bool) -> None:
        """Answer the queries of the action for the second audience."""
        self.do_query(index, present, "other")

    def do_query(self, index: int, _: Bools | bool, audience: str = "default") -> None:
        """Answer the action's queries for `audience`; append reply and public facts to outputs."""
        reply = self.system.predict(self.interaction.create_queries(index), audience=audience)
        state = self.system.facts()["audiences"][audience]
        public_state = {name: state[name] for name in ("plan", "queries", "usage")}
        self.outputs.append(repr([reply.to_dict(), public_state]))

    def do_refresh(self, _: int, __: Bools | bool) -> None:
        """Train the private model of the store again, and append the result."""
        self.outputs.append(self.system.refresh_model())

    def _open_system(self) -> Any:
        """Return the stored system, opened from its folder."""
        return Store.open(self._path)

    def do_restart(self, _: int, __: Bools | bool) -> None:
        """Close and reopen the store; the fault `refills_on_restart` then refills all budgets."""
        self.system.close()
        self.system = self._open_system()
        if self.fault.refills_on_restart:
            testing.refill_budgets(self.system)

    def do_evaluate(self, index: int, present: Bools | bool) -> None:
        """Evaluate the first answer with labels of the victim, if present, and a new subject."""
        copies = self.interaction.copies
        queries = np.repeat(self.interaction.create_queries(0)[:1], 2, axis=0)
        n_victims = int(np.broadcast_to(present, 1)[0])
        victims = copies.victims
        targets = np.concatenate([victims.y[:n_victims], copies.background.y[:1]])
        ids = np.concatenate([victims.subjects[:n_victims], [10**6 + index]])
        evaluation = self.system.evaluate(
            queries[: len(ids)], targets, ids, ids_differ=True, share=0.5, accept_noise=True
        )
        self.outputs.append(repr(evaluation.to_dict()))


class _ShardsSession(_StoreSession):
    """A cluster of three shards in this process, and all outputs of the actions on it."""

    def _create_system(self, records: testing.World) -> Any:
        super()._create_system(records).close()
        store_path = self._path
        self._path = store_path.with_name("cluster")
        split(store_path, self._path, 3)
        return self._open_system()

    def _open_system(self) -> Any:
        return Coordinator.open(self._path, local_transports)


INTERFACES = {"fit": _EstimatorSession, "store": _StoreSession, "shards": _ShardsSession}
"""Interfaces of the system through which interactions run, by name."""


class ChangedSums(NamedTuple):
    """The private sums of a release that differ between the worlds without and with the subject.

    `absent_sums`, `present_sums` (int64 (rows, ...)): the rows of sums that differ, in both worlds.
    `scale`: noise scale of the release, in grid steps.
    """

    absent_sums: Ints
    present_sums: Ints
    scale: int

    @property
    def shift(self) -> Floats:
        """The change of each private sum by the subject, in units of the noise scale."""
        return (self.present_sums - self.absent_sums) / self.scale


@dataclass(frozen=True)
class TwoWorlds:
    """The private sums of one transcript in both worlds.

    `releases`: those that the subject changes. `has_equal_outputs`: whether all outputs, noise
    scales, shapes and the number of releases were equal.
    """

    releases: list[ChangedSums]
    has_equal_outputs: bool

    @classmethod
    def from_interaction(
        cls, interaction: AuditInteraction, fault: InjectedFault = NO_FAULT
    ) -> "TwoWorlds":
        """Return the sums of an interaction, run without and with its victims under `fault`."""
        absent_transcript = testing.Transcript(testing.no_noise())
        present_transcript = testing.Transcript(replayed=absent_transcript)
        absent_outputs = interaction.run(False, fault, absent_transcript)
        present_outputs = interaction.run(True, fault, present_transcript)
        has_equal_outputs = not present_transcript.has_diverged and all(
            map(_are_equal, absent_outputs, present_outputs)
        )
        releases = []
        for (absent, scale, _), (present, _, _) in zip(
            absent_transcript.released, present_transcript.released, strict=False
        ):
            if absent.shape == present.shape and (absent != present).any():
                is_changed = (absent != present).reshape(len(absent), -1).any(axis=1)
                releases.append(ChangedSums(absent[is_changed], present[is_changed], scale))
        return cls(releases, has_equal_outputs)

    def compute_total_shift(self, table: ChargeTable | None, n_classes: int) -> float:
        """Return the total shift of all releases as mu: the root of the sum of squared shifts.

        - `table`: charges of labels; None if votes are released. A label that follows from a single
          shifted vote is charged a share of the vote's charge, and adds this share of its square.
          The share depends on the shift and on the share of the budget that is not yet spent.
        - `n_classes`: number of values of a release of votes; releases with another number of
          values, such as gradients, are never labels.
        """
        total = 0.0
        for release in self.releases:
            shift = release.shift
            square = float(np.square(shift).sum())
            if table and shift.shape == (1, n_classes) and np.count_nonzero(shift) == 1:
                # All squared shifts that a budget allows add up to twice the budget.
                remaining_share = 1 - total / (2 * table.budget)
                square *= float(table.compute_share(float(np.abs(shift).max()), remaining_share))
            total += square
        return float(np.sqrt(total))

    def sample_outputs(self, present: bool, noise: NoiseSource, n_runs: int) -> list[AnyArray]:
        """Return noisy sums of each changed release for independent runs, (n_runs, rows, ...).

        `present`: whether they are the sums with the subject. `noise`: source of the added noise.
        """
        noisy_sums = []
        for release in self.releases:
            sums = release.present_sums if present else release.absent_sums
            all_runs = np.broadcast_to(sums, (n_runs, *sums.shape))
            noisy_sums.append(noise.add_to(all_runs, release.scale))
        return noisy_sums


def _are_equal(first: Any, second: Any) -> bool:
    """Return whether two outputs are equal, where NaN equals NaN in float arrays."""
    if isinstance(first, np.ndarray):
        return np.array_equal(first, second, equal_nan=first.dtype.kind == "f")
    return bool(first == second)
