"""For tests and audits of private predictions: budgets in the open, known noise, two worlds.

Everything here looks behind the guarantee. It is for made-up records, or for a curator who checks
their own system: what it returns is as private as the records, and nothing seen with it may leave.

>>> import numpy as np
>>> from vicinal import IndKNNClassifier, testing
>>> rng = np.random.default_rng(0)
>>> world = testing.World(rng.normal(size=(300, 4)), rng.integers(0, 2, 300), np.arange(300))
>>> with testing.noise_from(testing.no_noise()):
...     clf = IndKNNClassifier(range(2), n_queries=5, n_records=300, model_share=0)
...     clf = clf.fit(*world, public=rng.normal(size=(100, 4)))
>>> votes = clf.decision_function(world.X[:5])
>>> min(testing.remaining_budgets(clf).values()) < 1
True
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray, Ints
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger.total import TotalFilter
from vicinal.mechanisms.count import NoisyCount, noisy_size
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.mechanisms.noise_sources import BernoulliSource, NoiseSource, create_noise_source
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.tally import NoisyTally
from vicinal.mechanisms.votes import BlockRelease
from vicinal.store.base_store import DEFAULT, BaseStore
from vicinal.store.store import Store


def remaining_budgets(owner: Any, audience: str = DEFAULT) -> dict[SubjectId, float]:
    """Return what every subject has left, as a share of a full budget. Private.

    Parameters
    ----------
    owner : fitted Ind-KNN estimator, or Store
        Whose subjects are meant; those who were erased are not there.
    audience : str
        The audience of a store.

    Raises
    ------
    InvalidInput
        If `owner` keeps no budgets in this process: a cluster, say, or an estimator before `fit`.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> testing.remaining_budgets(clf)[17]
    1.0
    """
    places, units = _places_and_units(owner, audience)
    return {subject: int(units[slot]) / UNITS for subject, slot in places.items()}


def _places_and_units(owner: Any, audience: str) -> tuple[Any, Ints]:
    """Return the slot of every subject, and units left by slot: the array that is charged."""
    if isinstance(owner, Store):
        ledger = owner._parts.ledger
        return ledger.slot_table.slot_of, ledger.audiences[audience].account.remaining
    if not hasattr(owner, "_engine"):
        raise InvalidInput("Budgets can be read of a fitted Ind-KNN estimator or a Store.")
    account = owner._engine.shard.ledger
    return account._slot_of, account.remaining


class _Silence(NoiseSource):
    """A source of zeros: what is released is the sum itself."""

    exact = False

    def discrete_gaussian(self, scale: int, size: int) -> Ints:  # noqa: ARG002 (whatever the scale)
        return np.zeros(size, dtype=np.int64)


class _WeakNoise(NoiseSource):
    """A part of the noise that was paid for."""

    exact = False

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        self._noise = create_noise_source()

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        return self._noise.discrete_gaussian(max(1, scale // self._divisor), size)


def no_noise() -> NoiseSource:
    """Return a source of zeros, to see the sums that charges paid for.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.no_noise().discrete_gaussian(100, 2)
    array([0, 0])
    """
    return _Silence()


def weak_noise(divisor: int = 2) -> NoiseSource:
    """Return exact noise at scales divided by `divisor`: a broken version, for audits to catch.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.weak_noise(4).exact
    False
    """
    return _WeakNoise(divisor)


def seeded_noise(seed: int) -> NoiseSource:
    """Return noise that is the same for the same seed and calls; it carries no guarantee.

    Examples
    --------
    >>> from vicinal import testing
    >>> one, two = testing.seeded_noise(3), testing.seeded_noise(3)
    >>> bool((one.discrete_gaussian(9, 5) == two.discrete_gaussian(9, 5)).all())
    True
    """
    return create_noise_source(seed)


@contextmanager
def noise_from(source: NoiseSource) -> Iterator[None]:
    """Let everything that is planned inside draw its noise from `source`.

    Estimators fitted and stores made or opened inside keep it afterwards. For one thread.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.noise_from(testing.no_noise()):
    ...     pass  # what is fitted here releases its sums as they are
    """
    # Mechanisms are given their noise; whoever makes it above them does so by one name.
    with _replaced(
        "create_noise_source", lambda _=None: source, ("vicinal.mechanisms", "vicinal.noise")
    ):
        yield


@contextmanager
def coins_from(source: BernoulliSource) -> Iterator[None]:
    """Let everything that is planned inside toss its coins by `source`, as :func:`noise_from`.

    Examples
    --------
    >>> from vicinal import testing
    >>> from vicinal.mechanisms.noise_sources import SimulatedBernoulli
    >>> with testing.coins_from(SimulatedBernoulli(0)):
    ...     pass  # what is fitted here samples alike every time
    """
    with _replaced("bernoulli_source", lambda _=None: source, ("vicinal.mechanisms",)):
        yield


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Let searches and charges inside run on `number` threads: it must not change an answer.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.use_threads(3):
    ...     pass  # what is asked here is asked by three threads
    """
    with _replaced("THREADS", number):
        yield


@contextmanager
def _replaced(name: str, value: Any, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Replace a global in all loaded modules of vicinal that have it, but in packages `but`."""
    places = [
        vars(module)
        for path, module in list(sys.modules.items())
        if path.startswith("vicinal.") and not path.startswith((*but, __name__))
        if name in vars(module)
    ]
    before = [place[name] for place in places]
    for place in places:
        place[name] = value
    try:
        yield
    finally:
        for place, old in zip(places, before, strict=True):
            place[name] = old


def draw_from(owner: Any, source: NoiseSource) -> None:
    """Let one fitted estimator draw from `source` instead of its own noise, from now on.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> testing.draw_from(clf, testing.no_noise())
    """
    engine = owner._engine
    engine.votes.noise = source
    if engine.count is not None:
        engine.count._noise = source


@dataclass(frozen=True)
class World:
    """Records to fit on: features (n, d), what they carry (n, ...), and subjects (n,).

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import testing
    >>> world = testing.World(np.eye(3), np.zeros(3), np.array([1, 2, 2]))
    >>> len(world.without(2).X)
    1
    """

    X: AnyArray
    y: AnyArray
    subjects: AnyArray

    def __iter__(self) -> Iterator[AnyArray]:
        return iter((self.X, self.y, self.subjects))

    def without(self, subject: SubjectId) -> World:
        """Return the neighbouring world: all records but those of one subject."""
        stays = np.asarray(self.subjects) != subject
        return World(self.X[stays], self.y[stays], np.asarray(self.subjects)[stays])

    def only(self, subject: SubjectId) -> World:
        """Return the records of one subject alone."""
        own = np.asarray(self.subjects) == subject
        return World(self.X[own], self.y[own], np.asarray(self.subjects)[own])


class Transcript(NoiseSource):
    """Noise, and in `released` every private sum that it was put on: (sums, scale, what left).

    Everything that the individual filter pays for goes this way: votes, vectors, gradients, counts,
    sizes and evaluations. With `follows`, what leaves is what left there, whatever the sums are:
    then two worlds go through one course of an interaction, and what they differ in is one
    subject's. A course that depends on the subject shows: `strayed` is True. Private.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import testing
    >>> one = testing.Transcript(testing.no_noise())
    >>> other = testing.Transcript(follows=one)
    >>> one.add_to(np.array([3]), scale=8), other.add_to(np.array([5]), scale=8)
    (array([3]), array([3]))
    >>> [int(sums[0]) for sums, _, _ in other.released], other.strayed
    ([5], False)
    """

    exact = False

    def __init__(self, noise: NoiseSource | None = None, follows: Transcript | None = None) -> None:
        self._noise = noise or create_noise_source()
        self._follows = None if follows is None else follows.released
        self.released: list[tuple[Ints, int, Ints]] = []
        self._off_course = False

    @property
    def strayed(self) -> bool:
        """Whether anything but the same scales and sizes came up, or not as much of it."""
        missing = self._follows is not None and len(self._follows) != len(self.released)
        return self._off_course or missing

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return draws of the noise, as they are."""
        return self._noise.discrete_gaussian(scale, size)

    def add_to(self, sums: Ints, scale: int) -> Ints:
        """Return what leaves of private sums, and keep both."""
        number, private = len(self.released), sums.copy()
        noisy = self._noise.add_to(sums, scale)
        if self._follows is not None and number < len(self._follows):
            before, known, left = self._follows[number]
            self._off_course |= before.shape != sums.shape or known != scale
            noisy = noisy if self._off_course else left.copy()
        self.released.append((private, scale, noisy.copy()))
        return noisy


Charge = Callable[[Ints, Ints], Ints]


def _everything(before: Ints) -> Ints:
    return np.full(len(before), UNITS, dtype=np.int64)


def _to_the_last(before: Ints, spent: Ints) -> Ints:
    """Let the last subject pay for all."""
    after = before.copy()
    after[-1:] = np.maximum(after[-1:] - spent.sum(), 0)  # a shard may hold nobody
    return after


def _kept(before: Ints, spent: Ints) -> Ints:
    return np.asarray(np.maximum(before - spent, 0))


CHARGE_FAULTS: dict[str, tuple[Callable[[Ints], Ints], Charge]] = {
    "uncharged": (np.copy, lambda before, _: before),
    "charged half": (np.copy, lambda before, spent: before - spent // 2),
    "charged to somebody else": (np.copy, _to_the_last),
    "not stopped": (_everything, _kept),
    "stopped late": (lambda before: np.where(before > 0, UNITS, 0), _kept),
    "neither charged nor stopped": (_everything, lambda before, _: before),
}
"""By what is wrong: the units that a release finds, and those it leaves, of what it has spent."""

MEMORY_FAULT = "memory not cleaned"
"""What was summed for one query stays, uncharged, in the sums of the next."""

CHARGED = ("votes", "counts", "training", "size", "evaluation")
"""What subjects pay for; and "total", by which audiences pay into one account."""


@contextmanager
def charges_broken(fault: str, where: Sequence[str] = CHARGED) -> Iterator[None]:
    """Break what releases charge inside, for audits to catch; for one thread.

    `fault`: one of :data:`CHARGE_FAULTS`, or :data:`MEMORY_FAULT`. `where`: releases of which kinds
    are broken, of :data:`CHARGED`; a "total" is never charged then, whatever the fault.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> with testing.charges_broken("uncharged"):
    ...     labels = clf.predict(X[:3])
    >>> set(testing.remaining_budgets(clf).values())
    {1.0}
    """
    places = {
        "votes": (BlockRelease, "contribute_and_charge"),
        "counts": (NoisyCount, "contribute_and_charge"),
        "training": (GradientRelease, "collect"),
        "evaluation": (NoisyTally, "collect"),
    }
    with ExitStack() as stack:
        for kind in where:
            if kind == "total":
                stack.callback(setattr, TotalFilter, "price", TotalFilter.price)
                TotalFilter.price = lambda *args: 0 * args[-1]  # type: ignore[method-assign]
                continue
            if kind == "size":
                stack.enter_context(_replaced("noisy_size", _broken(noisy_size, fault)))
                continue
            owner, name = places[kind]
            honest = getattr(owner, name)
            stack.callback(setattr, owner, name, honest)
            setattr(owner, name, _broken(honest, fault))
        yield


def _broken(honest: Callable[..., Any], fault: str) -> Callable[..., Any]:
    if fault == MEMORY_FAULT:

        def unclean(*args: Any) -> Any:
            result = honest(*args)
            if isinstance(args[0], BlockRelease):
                result[0][1:] += result[0][:-1].copy()
            return result

        return unclean
    offer, settle = CHARGE_FAULTS[fault]

    def broken(*args: Any) -> Any:
        tables = [each.remaining for each in args if isinstance(each, SubjectTable)]
        remaining = tables[0] if tables else args[-1]
        before = remaining.copy()
        offered = offer(before)
        remaining[:] = offered
        result = honest(*args)
        remaining[:] = settle(before, offered - remaining)
        if not isinstance(result, tuple):
            return result
        # The total goes along: a ledger compares it with what budgets have lost.
        return *result[:-1], int((before - remaining).sum())

    return broken


@contextmanager
def plans_broken(factor: int = 2) -> Iterator[None]:
    """Let what is planned inside make `factor` times the releases that it was priced for.

    Of Private-kNN, PATE and NoisySGD, whose every release is counted and not charged.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.plans_broken():
    ...     pass  # what is fitted here answers twice as many queries as its plan says
    """
    honest = ReleaseCounter.__init__

    def generous(self: ReleaseCounter, planned: int, noun: str) -> None:
        honest(self, factor * planned, noun)

    ReleaseCounter.__init__ = generous  # type: ignore[method-assign]
    try:
        yield
    finally:
        ReleaseCounter.__init__ = honest  # type: ignore[method-assign]


def refill_budgets(owner: Any, audience: str = DEFAULT) -> None:
    """Break the filter: give every subject a whole budget again, uncharged.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> labels = clf.predict(X[:5])
    >>> testing.refill_budgets(clf)
    >>> set(testing.remaining_budgets(clf).values())
    {1.0}
    """
    if not isinstance(owner, BaseStore):
        _places_and_units(owner, audience)[1][:] = UNITS
        return
    for ledger in _ledgers(owner):
        account = ledger.audiences[audience].account
        account.remaining[:] = UNITS
        account.durable[:] = UNITS  # as if it had been read so: else the next charges do not add up


def _ledgers(owner: Any) -> list[Any]:
    """Return the ledger of a store, or those of a cluster's shards in this process."""
    shards = [client.transport.shard for client in getattr(owner, "_clients", ())]
    return [shard._server._parts.ledger for shard in shards] or [owner._parts.ledger]


def forget_departed(owner: Any) -> None:
    """Break the ledger of an estimator, store or cluster: who left comes back with a whole budget.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, who = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, who % 2, who, public=X[:40] + 1)
    >>> clf.erase([17])
    1
    >>> testing.forget_departed(clf)  # 17 would come back with a full budget
    """
    if not isinstance(owner, BaseStore):
        owner._engine.shard.ledger._departed.clear()
        return
    for ledger in _ledgers(owner):
        ledger._departed = lambda *_: {}
