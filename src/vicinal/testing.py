"""Tools for tests and audits: seeded or zero noise, neighbouring data sets, accounting errors.

These tools bypass the privacy guarantee. Use them with synthetic records, or as a curator to check
a system. Their results are as private as the records and must not be published.

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
from vicinal.mechanisms import count as counts
from vicinal.mechanisms import injected_sources
from vicinal.mechanisms.count import NoisyCount
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.mechanisms.noise_sources import (
    BernoulliSource,
    NoiseSource,
    SimulatedNoise,
    SystemNoise,
)
from vicinal.mechanisms.planned_releases import ReleaseCounter
from vicinal.mechanisms.subject_table import SubjectTable
from vicinal.mechanisms.tally import NoisyTally
from vicinal.mechanisms.votes import BlockRelease
from vicinal.neighbours import scan
from vicinal.store.base_store import DEFAULT, BaseStore
from vicinal.store.store import Store


def remaining_budgets(holder: Any, audience: str = DEFAULT) -> dict[SubjectId, float]:
    """Return every enrolled subject's remaining budget, as a fraction of a full one; private.

    `holder`: a fitted Ind-KNN estimator, or a store. `audience`: of the store. Raises InvalidInput
    for objects without budgets in this process, such as a cluster.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import IndKNNClassifier, testing
    >>> X, ids = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60)
    >>> clf = IndKNNClassifier(range(2), n_queries=5, n_records=60, model_share=0)
    >>> clf = clf.fit(X, ids % 2, ids, public=X[:40] + 1)
    >>> testing.remaining_budgets(clf)[17]
    1.0
    """
    slot_by_subject, remaining = _find_remaining_units(holder, audience)
    return {subject: int(remaining[slot]) / UNITS for subject, slot in slot_by_subject.items()}


def _find_remaining_units(holder: Any, audience: str) -> tuple[Any, Ints]:
    """Return each subject's index in the ledger's arrays, and the array of remaining budgets.

    The array (subjects,), in units, is the one that is charged, not a copy. `holder`: a fitted
    Ind-KNN estimator or a Store. `audience`: name of a store's audience; ignored for an estimator.
    """
    if isinstance(holder, Store):
        ledger = holder._store.ledger
        return ledger.slot_table.slot_of, ledger.audiences[audience].account.remaining
    if not hasattr(holder, "_engine"):
        raise InvalidInput("Budgets can be read of a fitted Ind-KNN estimator or a Store.")
    account = holder._engine.shard.ledger
    return account._slot_of, account.remaining


class _NoNoise(NoiseSource):
    """Source of zeros, with which the released values are the private sums."""

    exact = False

    def discrete_gaussian(self, scale: int, size: int) -> Ints:  # noqa: ARG002 (zero at every scale)
        """Return zeros (size,), int64, at every noise `scale`."""
        return np.zeros(size, dtype=np.int64)


class _WeakNoise(NoiseSource):
    """Source of noise at scales divided by `divisor`, so that the charges are too small."""

    exact = False

    def __init__(self, divisor: int) -> None:
        self._divisor = divisor
        self._noise = SystemNoise()

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return samples (size,), int64, with standard deviation `scale` over the divisor."""
        return self._noise.discrete_gaussian(max(1, scale // self._divisor), size)


def no_noise() -> NoiseSource:
    """Return a noise source of zeros, with which the private sums are released unchanged.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.no_noise().discrete_gaussian(100, 2)
    array([0, 0])
    """
    return _NoNoise()


def weak_noise(divisor: int = 2) -> NoiseSource:
    """Return a source of noise at scales divided by `divisor`, a fault that audits must detect.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.weak_noise(4).exact
    False
    """
    return _WeakNoise(divisor)


def seeded_noise(seed: int) -> NoiseSource:
    """Return a source of noise that is repeatable by its seed; it gives no guarantee.

    Examples
    --------
    >>> from vicinal import testing
    >>> first, second = testing.seeded_noise(3), testing.seeded_noise(3)
    >>> bool((first.discrete_gaussian(9, 5) == second.discrete_gaussian(9, 5)).all())
    True
    """
    return SimulatedNoise(seed)


@contextmanager
def noise_from(source: NoiseSource) -> Iterator[None]:
    """Make `source` the noise source of everything that is planned in this context.

    Estimators fitted, and stores created or opened, in the context keep the source afterwards.
    Their guarantees assume real noise and do not mention the source. For one thread.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.noise_from(testing.no_noise()):
    ...     pass  # an estimator fitted here releases its sums without noise
    """
    with injected_sources.noise_sources.inject(source):
        yield


@contextmanager
def coins_from(source: BernoulliSource) -> Iterator[None]:
    """Make `source` the source of Poisson samples in this context, as :func:`noise_from` for noise.

    Examples
    --------
    >>> from vicinal import testing
    >>> from vicinal.mechanisms.noise_sources import SimulatedBernoulli
    >>> with testing.coins_from(SimulatedBernoulli(0)):
    ...     pass  # an estimator fitted here draws repeatable samples
    """
    with injected_sources.samplers.inject(source):
        yield


@contextmanager
def use_threads(number: int) -> Iterator[None]:
    """Run searches and charges in this context on `number` >= 1 threads; answers do not change.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.use_threads(3):
    ...     pass  # queries are answered on three threads here
    """
    with scan.use_threads(number):
        yield


@contextmanager
def _break_function(owner: Any, name: str, broken: Callable[..., Any]) -> Iterator[None]:
    """Replace the function `name` of a class or module `owner` by a `broken` one, in this context.

    The product has no switch that turns its charges off, so a broken version is made from outside,
    here and nowhere else.
    """
    original = getattr(owner, name)
    try:
        setattr(owner, name, broken)
        yield
    finally:
        setattr(owner, name, original)


@dataclass(frozen=True)
class World:
    """A data set to fit on: features `X` (n, d), targets `y` (n, ...) and subject ids (n,).

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
        """Yield features, targets and subject ids, the first arguments of `fit`."""
        return iter((self.X, self.y, self.subjects))

    def without(self, subject: SubjectId) -> World:
        """Return the neighbouring data set, without the records of one subject."""
        is_other = np.asarray(self.subjects) != subject
        return World(self.X[is_other], self.y[is_other], np.asarray(self.subjects)[is_other])

    def only(self, subject: SubjectId) -> World:
        """Return the data set with only the records of one subject."""
        is_own = np.asarray(self.subjects) == subject
        return World(self.X[is_own], self.y[is_own], np.asarray(self.subjects)[is_own])


class Transcript(NoiseSource):
    """Noise source that records every release: private sums, noise scale and released values.

    `released` is the list of (private sums, scale, released values) of all releases charged by the
    individual filter: votes, vectors, gradients, counts, sizes and evaluations. Private.

    With `replayed`, the released values are those of another transcript, for any private sums: an
    interaction repeats the same releases with a neighbouring data set, and its private sums differ
    by the contributions of one subject. `has_diverged` is True if the sequence of releases, its
    scales and sizes, depends on the subject.

    - `noise`: the underlying source; system entropy by default.
    - `replayed`: the transcript whose released values are repeated.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import testing
    >>> first = testing.Transcript(testing.no_noise())
    >>> second = testing.Transcript(replayed=first)
    >>> first.add_to(np.array([3]), scale=8), second.add_to(np.array([5]), scale=8)
    (array([3]), array([3]))
    >>> [int(sums[0]) for sums, _, _ in second.released], second.has_diverged
    ([5], False)
    """

    exact = False

    def __init__(
        self, noise: NoiseSource | None = None, replayed: Transcript | None = None
    ) -> None:
        self._noise = noise or SystemNoise()
        self._replayed = None if replayed is None else replayed.released
        self.released: list[tuple[Ints, int, Ints]] = []
        self._has_diverged = False

    @property
    def has_diverged(self) -> bool:
        """Whether number, sizes or noise scales of the releases differ from the replayed ones."""
        differs_in_number = self._replayed is not None and len(self._replayed) != len(self.released)
        return self._has_diverged or differs_in_number

    def discrete_gaussian(self, scale: int, size: int) -> Ints:
        """Return samples (size,) of the underlying source, with standard deviation `scale`.

        Only :meth:`add_to` records and replays values.
        """
        return self._noise.discrete_gaussian(scale, size)

    def add_to(self, sums: Ints, scale: int) -> Ints:
        """Return the released values, a new int64 array, for private `sums`; record the release.

        `sums`, int64 of any shape, in grid steps, do not change. `scale`: standard deviation of the
        discrete Gaussian noise, in grid steps.
        """
        number = len(self.released)
        private_sums = sums.copy()
        noisy = self._noise.add_to(sums, scale)
        if self._replayed is not None and number < len(self._replayed):
            replayed_sums, replayed_scale, replayed_values = self._replayed[number]
            self._has_diverged |= replayed_sums.shape != sums.shape or replayed_scale != scale
            noisy = noisy if self._has_diverged else replayed_values.copy()
        self.released.append((private_sums, scale, noisy.copy()))
        return noisy


# Function of the budgets `remaining` before a release and the charges `spent` by it, both
# (subjects,) in units, that returns the budgets after the release.
Charge = Callable[[Ints, Ints], Ints]


def _offer_full_budgets(remaining: Ints) -> Ints:
    """Return full budgets (subjects,) instead of the remaining ones; all in units."""
    return np.full(len(remaining), UNITS, dtype=np.int64)


def _charge_last_subject(remaining: Ints, spent: Ints) -> Ints:
    """Return the budgets after a release that charged the last subject for all subjects."""
    charged = remaining.copy()
    charged[-1:] = np.maximum(charged[-1:] - spent.sum(), 0)  # a shard may be empty
    return charged


def _charge_down_to_zero(remaining: Ints, spent: Ints) -> Ints:
    """Return the budgets after a release that charged correctly; 0 where budgets were exceeded."""
    return np.asarray(np.maximum(remaining - spent, 0))


CHARGE_FAULTS: dict[str, tuple[Callable[[Ints], Ints], Charge]] = {
    "uncharged": (np.copy, lambda remaining, _: remaining),
    "charged half": (np.copy, lambda remaining, spent: remaining - spent // 2),
    "charged to another subject": (np.copy, _charge_last_subject),
    "not stopped": (_offer_full_budgets, _charge_down_to_zero),
    "stopped late": (lambda remaining: np.where(remaining > 0, UNITS, 0), _charge_down_to_zero),
    "neither charged nor stopped": (_offer_full_budgets, lambda remaining, _: remaining),
}
"""Faults of charging by name, as pairs of functions.

The first returns the budgets on which a release operates, given the true ones. The second returns
the budgets after the release, given those before it and the units that the release charged.
"""

MEMORY_FAULT = "memory not cleaned"
"""Fault in which the buffer of sums is not cleared between queries.

The sums of a query are then also added, without a charge, to those of the next query.
"""

CHARGED = ("votes", "counts", "training", "size", "evaluation")
"""Kinds of charged releases. In addition, "total" is the account that all audiences charge."""


@contextmanager
def charges_broken(fault: str, where: Sequence[str] = CHARGED) -> Iterator[None]:
    """Inject a fault into the charges of releases in this context, which audits must detect.

    For one thread. `fault`: a key of :data:`CHARGE_FAULTS`, or :data:`MEMORY_FAULT`. `where`: the
    affected kinds of releases, of :data:`CHARGED`. "total" disables the charges to the total
    account, for any fault.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.charges_broken("uncharged"):
    ...     pass  # predictions of an estimator leave all budgets unchanged here
    """
    functions: dict[str, tuple[Any, str]] = {
        "votes": (BlockRelease, "contribute_and_charge"),
        "counts": (NoisyCount, "contribute_and_charge"),
        "training": (GradientRelease, "contribute_and_charge"),
        "evaluation": (NoisyTally, "contribute_and_charge"),
        "size": (counts, "release_noisy_size"),
        "total": (TotalFilter, "price"),
    }
    with ExitStack() as stack:
        for kind in where:
            owner, name = functions[kind]
            correct = getattr(owner, name)
            broken = _price_nothing if kind == "total" else _add_fault(correct, fault)
            stack.enter_context(_break_function(owner, name, broken))
        yield


def _price_nothing(_: TotalFilter, __: int, units: Ints) -> Ints:
    """Return zero prices (n,) in the total account for charges (n,) in an audience, in `units`."""
    return 0 * units


def _add_fault(charge: Callable[..., Any], fault: str) -> Callable[..., Any]:
    """Return a version of a charging function with an injected accounting fault.

    `charge`: method or function that deducts charges in place from remaining units: from
    `remaining` of its `SubjectTable` argument if there is one, otherwise from the array that is its
    last argument. If it returns a tuple, the last value is the sum of charges. `fault`: its name, a
    key of :data:`CHARGE_FAULTS`, or :data:`MEMORY_FAULT`.
    """
    if fault == MEMORY_FAULT:

        def add_previous_sums(*args: Any) -> Any:
            """Call `charge`, then add the sums of each query to those of the next."""
            result = charge(*args)
            if isinstance(args[0], BlockRelease):
                result[0][1:] += result[0][:-1].copy()
            return result

        return add_previous_sums
    offer_budgets, compute_remaining = CHARGE_FAULTS[fault]

    def charge_wrongly(*args: Any) -> Any:
        """Call `charge` with the offered budgets, then set the faulty remaining ones."""
        tables = [argument.remaining for argument in args if isinstance(argument, SubjectTable)]
        remaining = tables[0] if tables else args[-1]
        remaining_before = remaining.copy()
        offered = offer_budgets(remaining_before)
        remaining[:] = offered
        result = charge(*args)
        remaining[:] = compute_remaining(remaining_before, offered - remaining)
        if not isinstance(result, tuple):
            return result
        # The sum of charges is adjusted, because the ledger compares it with the loss of budgets.
        return *result[:-1], int((remaining_before - remaining).sum())

    return charge_wrongly


@contextmanager
def multiply_planned_releases(factor: int = 2) -> Iterator[None]:
    """Inject a fault: plans made in this context permit `factor` times the releases they cover.

    Only Private-kNN, PATE and NoisySGD limit their releases by a count, not by charges to budgets.

    Examples
    --------
    >>> from vicinal import testing
    >>> with testing.multiply_planned_releases():
    ...     pass  # an estimator fitted here answers twice as many queries as planned
    """
    original_init = ReleaseCounter.__init__

    def multiply_planned(self: ReleaseCounter, planned: int, noun: str) -> None:
        """Initialize a counter that permits `factor` times the `planned` releases."""
        original_init(self, factor * planned, noun)

    with _break_function(ReleaseCounter, "__init__", multiply_planned):
        yield


def refill_budgets(holder: Any, audience: str = DEFAULT) -> None:
    """Inject a fault of the individual filter: give every enrolled subject a full budget again.

    `holder`: a fitted Ind-KNN estimator, a store or a cluster; `audience`: of the last two.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.refill_budgets(clf)  # doctest: +SKIP
    """
    if not isinstance(holder, BaseStore):
        _find_remaining_units(holder, audience)[1][:] = UNITS
        return
    for ledger in _get_ledgers(holder):
        account = ledger.audiences[audience].account
        account.remaining[:] = UNITS
        # Also in the copy of the durable state: otherwise the next charges would not add up.
        account.durable[:] = UNITS


def _get_ledgers(holder: Any) -> list[Any]:
    """Return the ledgers with the budgets of a store or cluster.

    `holder`: a store, which has one; or a cluster, whose shards in this process have one each.
    """
    shards = [client.transport for client in getattr(holder, "_clients", ())]
    return [shard._server._store.ledger for shard in shards] or [holder._store.ledger]


def forget_erased_budgets(holder: Any) -> None:
    """Inject a fault: erased subjects lose their remaining budgets, and re-enroll with full ones.

    `holder`: a fitted Ind-KNN estimator, a store, or a cluster.

    Examples
    --------
    >>> from vicinal import testing
    >>> testing.forget_erased_budgets(clf)  # doctest: +SKIP
    """
    if not isinstance(holder, BaseStore):
        holder._engine.shard.ledger._erased_units.clear()
        return
    for ledger in _get_ledgers(holder):
        ledger._find_erased = lambda *_: {}
