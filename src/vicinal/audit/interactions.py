"""Interactions with the product through its doors, in two worlds that one subject tells.

The doors are `fit`, a Store, and a cluster's shards.

An interaction is gone through twice. First without the subject; what every noisy sum came to is
kept. Then with the subject, and what leaves is forced to be what left before. So both worlds have
one course, and three things can be told without any luck:

- What the subject moved each private sum by, in noise scales. The individual filter promises that
  the squares add up to 2 B at most, along every course (mechanisms/votes.md): a charge that is
  missing shows to the last digit.
- Whether scales, sizes and the number of releases follow from the course alone.
- Whether all that left is the same, as it must be if it was made of noisy sums and public things.

Then noise is drawn anew on the same sums, as the product draws it, and the attacker guesses.
"""

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

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

# ---------------------------------------------------------------- versions broken on purpose


@dataclass(frozen=True)
class Damage:
    """What a broken version does wrong; as it stands here, nothing: the installed one.

    - `noise_divisor`: noise scales are divided by it.
    - `charging`, `where`: what is wrong with charges, and with which, see
      :func:`vicinal.testing.charges_broken`.
    - `refills`: who leaves is forgotten, and returns with a full budget.
    - `restarts_full`: a store that is opened again gives every subject a full budget.
    - `forgets_subjects`: every record counts as a subject of its own.
    - `plan_factor`: so many times the planned releases are made.
    - `samples_all`: coins are forgotten: everybody takes part.
    - `replaces`: samples are of fixed size, drawn with replacement, as published code did.
    """

    noise_divisor: int = 1
    charging: str = ""
    where: Sequence[str] = testing.CHARGED
    refills: bool = False
    restarts_full: bool = False
    forgets_subjects: bool = False
    plan_factor: int = 1
    samples_all: bool = False
    replaces: bool = False

    def noise(self) -> NoiseSource:
        return (
            testing.weak_noise(self.noise_divisor)
            if self.noise_divisor > 1
            else create_noise_source()
        )

    @contextmanager
    def done(self) -> Iterator[None]:
        """Break charges, plans and coins of what runs inside."""
        with ExitStack() as stack:
            if self.charging:
                stack.enter_context(testing.charges_broken(self.charging, self.where))
            if self.plan_factor > 1:
                stack.enter_context(testing.plans_broken(self.plan_factor))
            if self.samples_all:
                stack.enter_context(testing.coins_from(Heads()))
            yield


HONEST = Damage()

CHARGING = (
    "uncharged",
    "charged half",
    "charged to somebody else",
    "not stopped",
    "stopped late",
    "neither charged nor stopped",
)
"""Broken versions of whatever charges subjects."""

_DAMAGES = {
    **{name: Damage(charging=name) for name in (*CHARGING, "memory not cleaned")},
    **{
        f"{kind} uncharged": Damage(charging="uncharged", where=(kind,))
        for kind in ("counts", "training", "size", "evaluation", "total")
    },
    "training neither charged nor stopped": Damage(
        charging="neither charged nor stopped", where=("training",)
    ),
    "refilled at restart": Damage(restarts_full=True),
    "drawn with replacement": Damage(replaces=True),
    "everybody sampled": Damage(samples_all=True),
    "noise a quarter": Damage(noise_divisor=4),
    "noise a third": Damage(noise_divisor=3),
    "noise halved": Damage(noise_divisor=2),
    "refilled on return": Damage(refills=True),
    "subjects forgotten": Damage(forgets_subjects=True),
    "twice the plan": Damage(plan_factor=2),
    "four times the plan": Damage(plan_factor=4),
}


def damages(*names: str) -> dict[str, Damage]:
    return {name: _DAMAGES[name] for name in names}


class Heads(BernoulliSource):
    """Coins that always come up."""

    exact = False

    def bernoulli(self, probability: float, size: int) -> Bools:  # noqa: ARG002 (as a source has it)
        return np.ones(size, dtype=np.bool_)


# ---------------------------------------------------------------- universes apart from each other

Placed = tuple[float, Any]
"""A record: its similarity to the universe's query, and its label, number, or row of them."""

_BITS = 6
"""Universes lie where the 2^6 signs of a codeword of RM(2, 6) are; any two differ in 16 at least,
so that no two are nearer to each other than a cosine of 1/2; radii are at .8."""

MOST = 1 << 20
"""Universes, at most; there are 2^21 codewords that begin with a plus."""

REFERENCE = 0.8
"""Similarity of a universe's one reference point, which sets an adaptive radius."""


@dataclass(frozen=True)
class Universes:
    """`count` universes: the subjects at risk, other people, reference points and queries."""

    count: int
    victims: testing.World
    others: testing.World
    public: FloatMatrix
    queries: FloatMatrix

    def people(self, present: Bools | bool) -> testing.World:
        """Return everybody of a world: all victims, none, or those marked (n_victims,)."""
        chosen = np.broadcast_to(present, self.count)[self.victims.subjects]
        # Subjects at risk come first: whatever they leave behind finds others after them.
        parts = zip(self.victims, self.others, strict=True)
        return testing.World(*(np.concatenate([victim[chosen], other]) for victim, other in parts))


@lru_cache(maxsize=1)
def _axes(count: int) -> Floats32:
    """Return directions, float32 (count, 64): values of polynomials of degree 2 in six bits."""
    bits = (np.arange(1 << _BITS)[:, None] >> np.arange(_BITS)) & 1
    pairs = [bits[:, i] * bits[:, j] for i in range(_BITS) for j in range(i + 1)]  # a bit squared
    chosen = (np.arange(count)[:, None] >> np.arange(len(pairs))) & 1
    signs = 1 - 2 * ((chosen @ np.array(pairs)) % 2)
    return np.asarray(signs / np.sqrt(signs.shape[1]), dtype=np.float32)


def directions(count: int, cosine: float) -> Floats32:
    """Return one vector per universe at `cosine` to its query, the rest along a shared axis."""
    remainder = np.full((count, 1), np.sqrt(1 - cosine**2), dtype=np.float32)
    return np.concatenate([np.float32(cosine) * _axes(count), remainder], axis=1)


def build_universes(
    victim: Sequence[Placed], others: Sequence[Placed], *, count: int = 1, twice: bool = True
) -> Universes:
    """Lay out `count` equal universes.

    `victim` and `others` are records as (cosine, label): those of the one subject at risk, and at
    least one of other people, a subject each; the first of them has its record `twice`.
    """
    doubled = [others[0], *others] if twice else others
    ids = count + np.arange(len(others) * count)
    ids = np.concatenate([ids[:count], ids]) if twice else ids
    return Universes(
        count,
        _placed(count, victim, np.tile(np.arange(count), len(victim))),
        _placed(count, doubled, ids),
        directions(count, REFERENCE),
        directions(count, 1.0),
    )


def _placed(count: int, records: Sequence[Placed], ids: Ints) -> testing.World:
    places = np.concatenate([directions(count, cosine) for cosine, _ in records])
    return testing.World(
        places, np.repeat(np.array([label for _, label in records]), count, axis=0), ids
    )


# ---------------------------------------------------------------- one interaction, two worlds

_TURN = 0.1
"""Angle between the queries of two rounds: a store would replay the answer to the same one."""


@dataclass(frozen=True)
class AuditInteraction:
    """What is done with made-up records, act by act, through one of :data:`FRONTS`.

    - `parameters`: of the estimator, or of the store and its one audience.
    - `world`: the records.
    - `acts`: "ask", "leave", "return"; of a store "refresh" (its model), "restart", "evaluate",
      "open" (another audience), "ask_other" (that one).
    - `through`: a name of :data:`FRONTS`.
    """

    parameters: Mapping[str, Any]
    world: Universes
    acts: Sequence[str]
    estimator: type[IndKNNEstimator] = IndKNNClassifier
    through: str = "fit"

    @property
    def plan(self) -> IndKNNPlan:
        own = {k: v for k, v in self.parameters.items() if k != "epsilon_total"}
        return IndKNNPlan.of(self.estimator(**own))

    def gone_through(
        self, present: Bools | bool, damage: Damage, transcript: testing.Transcript
    ) -> list[Any]:
        """Carry out all acts in one world; return all that left, as plain values and arrays."""
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            # Attackers ask for more than was planned; they are warned, and the guarantee holds.
            warnings.simplefilter("ignore")
            stack.enter_context(testing.noise_from(transcript))
            stack.enter_context(damage.done())
            people = self.world.people(present)
            if damage.forgets_subjects:
                people = testing.World(people.X, people.y, np.arange(len(people.X)))
            met = stack.enter_context(FRONTS[self.through](self, people, damage))
            for number, act in enumerate(self.acts):
                getattr(met, f"do_{act}")(number, present)
            return met.left

    def queries(self, number: int) -> FloatMatrix:
        """Return the queries of an act: beside each universe; if there is one, one far from it."""
        near, turn = self.world.queries, 0.0 if self.through == "fit" else number * _TURN
        away = np.zeros_like(near)
        away[:, -1] = -np.linalg.norm(near, axis=1)
        turned = np.cos(turn) * near + np.sin(turn) * away if turn else near
        return np.concatenate([turned, -near]) if len(near) == 1 else turned


class _EstimatorFront:
    """An estimator, fitted, and what left of it."""

    _adding: Mapping[str, Any] = {}

    def __init__(
        self, interaction: AuditInteraction, people: testing.World, damage: Damage
    ) -> None:
        self.interaction, self.damage, self.left = interaction, damage, list[Any]()
        self.met = self._started(people)

    def __enter__(self) -> "_EstimatorFront":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _started(self, people: testing.World) -> Any:
        made = self.interaction.estimator(**self.interaction.parameters, interactions="public")
        return made.fit(people.X, people.y, people.subjects, public=self.interaction.world.public)

    def do_ask(self, number: int, _: Bools | bool) -> None:
        found = self.met.query(self.interaction.queries(number))
        self.left += [found.labels, found.votes, found.noise, found.probabilities, found.asked]

    def do_leave(self, _: int, __: Bools | bool) -> None:
        self.met.erase(np.unique(self.interaction.world.victims.subjects))
        if self.damage.refills:
            testing.forget_departed(self.met)

    def do_return(self, number: int, present: Bools | bool) -> None:
        # Somebody new comes in both worlds: that somebody came is no secret.
        world, new = self.interaction.world, self.interaction.world.others.X[:1] * -1
        mine = np.broadcast_to(present, world.count)[world.victims.subjects]
        self.met.add(
            np.concatenate([world.victims.X[mine], new]),
            np.concatenate([world.victims.y[mine], world.others.y[:1]]),
            np.concatenate([world.victims.subjects[mine], [10**6 + number]]),
            **self._adding,
        )


class _StoreFront(_EstimatorFront):
    """The same for a store, made in a folder of its own."""

    # A broken store may have forgotten who is no stranger: it must get as far as it goes.
    _adding: Mapping[str, Any] = {"ids_differ": True}

    def __exit__(self, *_: object) -> None:
        self.met.close()
        self._folder.cleanup()

    def _started(self, people: testing.World) -> Any:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "store"
        return Store.init(
            self._path, *people, public=self.interaction.world.public, accept_weak_plan=True,
            **self.interaction.parameters,
        )  # fmt: skip

    def do_open(self, _: int, __: Bools | bool) -> None:
        shared = ("classes", "kernel", "norm_bound", "index", "epsilon_total")
        plan = {k: v for k, v in self.interaction.parameters.items() if k not in shared}
        self.met.open_audience("other", accept_weak_plan=True, **plan)

    def do_ask_other(self, number: int, present: Bools | bool) -> None:
        self.do_ask(number, present, "other")

    def do_ask(self, number: int, _: Bools | bool, audience: str = "default") -> None:
        reply = self.met.predict(self.interaction.queries(number), audience=audience)
        state = self.met.facts()["audiences"][audience]
        known = {name: state[name] for name in ("plan", "queries", "usage")}
        self.left.append(repr([reply.to_dict(), known]))

    def do_refresh(self, _: int, __: Bools | bool) -> None:
        self.left.append(self.met.refresh_model())

    def _opened(self) -> Any:
        return Store.open(self._path)

    def do_restart(self, _: int, __: Bools | bool) -> None:
        self.met.close()
        self.met = self._opened()
        if self.damage.restarts_full:
            testing.refill_budgets(self.met)

    def do_evaluate(self, number: int, present: Bools | bool) -> None:
        # Of the first answers; the subject says that its label was true, somebody else so, too.
        world = self.interaction.world
        rows = np.repeat(self.interaction.queries(0)[:1], 2, axis=0)
        own = int(np.broadcast_to(present, 1)[0])
        targets = np.concatenate([world.victims.y[:own], world.others.y[:1]])
        ids = np.concatenate([world.victims.subjects[:own], [10**6 + number]])
        found = self.met.evaluate(
            rows[: len(ids)], targets, ids, ids_differ=True, share=0.5, accept_noise=True
        )
        self.left.append(repr(found.to_dict()))


class _ShardsFront(_StoreFront):
    """The same for a cluster of three shards, all in this process."""

    def _started(self, people: testing.World) -> Any:
        super()._started(people).close()
        store, self._path = self._path, self._path.with_name("cluster")
        split(store, self._path, 3)
        return self._opened()

    def _opened(self) -> Any:
        return Coordinator.open(self._path, local_transports)


FRONTS = {"fit": _EstimatorFront, "store": _StoreFront, "shards": _ShardsFront}
"""Doors of the product by name."""


@dataclass(frozen=True)
class TwoWorlds:
    """The private sums of one course of an interaction in both worlds, and how they were released.

    `absent`, `present`: numbers that the subject moved, a release after the other; `scales`: the
    noise on each release. `alike`: whether all that left, and the course, was the same.
    """

    absent: list[Ints]
    present: list[Ints]
    scales: list[int]
    alike: bool

    @classmethod
    def of(cls, interaction: AuditInteraction, damage: Damage = HONEST) -> "TwoWorlds":
        first = testing.Transcript(testing.no_noise())
        second = testing.Transcript(follows=first)
        left = [
            interaction.gone_through(there, damage, transcript)
            for there, transcript in ((False, first), (True, second))
        ]
        alike = not second.strayed and all(map(_equal, *left))
        absent, present, scales = [], [], []
        for (one, scale, _), (other, _, _) in zip(first.released, second.released, strict=False):
            if one.shape == other.shape and (one != other).any():
                rows = (one != other).reshape(len(one), -1).any(axis=1)
                absent.append(one[rows])
                present.append(other[rows])
                scales.append(scale)
        return cls(absent, present, scales, alike)

    def shifts(self) -> list[Floats]:
        return [
            (other - one) / scale
            for one, other, scale in zip(self.absent, self.present, self.scales, strict=True)
        ]

    def moved(self, table: ChargeTable | None, classes: int) -> float:
        """Return the Gaussian shift that all of it is, or costs as much; rounded as doubles are.

        One vote of `classes` that is moved, where labels alone leave, costs a share, by `table` and
        by what is left.
        """
        total = 0.0
        for shift in self.shifts():
            square = float(np.square(shift).sum())
            if table and shift.shape == (1, classes) and np.count_nonzero(shift) == 1:
                left = 1 - total / (2 * table.budget)
                square *= float(table.share(float(np.abs(shift).max()), left))
            total += square
        return float(np.sqrt(total))

    def drawn(self, present: bool, noise: NoiseSource, runs: int) -> list[AnyArray]:
        """Return what leaves of so many runs of one world, (runs, rows, ...) for each release."""
        worlds = self.present if present else self.absent
        return [
            noise.add_to(np.broadcast_to(sums, (runs, *sums.shape)), scale)
            for sums, scale in zip(worlds, self.scales, strict=True)
        ]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return bool(one == other)
