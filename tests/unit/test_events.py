"""The bridge to dp-accounting's events: exact where both know a release, closed everywhere else."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from vicinal.accounting._composition import Composition, Zcdp, compose
from vicinal.accounting._events import from_event, to_event
from vicinal.accounting._gaussian import Laplace, SubsampledGaussian
from vicinal.accounting._screening import Screening
from vicinal.errors import InvalidInput

EVERYTHING = compose(
    [
        Composition.of(SubsampledGaussian(3.0, 0.2), 40),
        Composition.of(SubsampledGaussian(25.0), 7),
        Composition.of(Laplace(30.0), 5),
        Composition.of(Zcdp(0.01), 2),
    ]
)
ORDERS = [2, 3, 8, 30]


def test_there_and_back_is_the_same_to_the_last_bit():
    assert from_event(to_event(EVERYTHING)) == EVERYTHING


def test_their_rdp_of_our_event_is_our_rdp():
    theirs = RdpAccountant(ORDERS).compose(to_event(EVERYTHING))
    ours = EVERYTHING.rdp(np.array(ORDERS, dtype=float))
    assert ours == pytest.approx(theirs._rdp, rel=1e-9)


def test_their_pld_of_our_event_is_close_to_ours():
    cost = Composition.of(SubsampledGaussian(3.0, 0.2), 40).add(Composition.of(Laplace(30.0), 5))
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(to_event(cost))
    assert cost.to_epsilon(1e-5, "pld") == pytest.approx(theirs.get_epsilon(1e-5), rel=3e-3)


def test_several_gaussians_on_one_sample_are_one_of_larger_shift():
    inner = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.GaussianDpEvent(4.0),
            dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(8.0), 4),
        ]
    )
    event = dp_accounting.PoissonSampledDpEvent(0.1, inner)
    theirs = RdpAccountant(ORDERS).compose(event)._rdp
    ours = from_event(event).rdp(np.array(ORDERS, dtype=float))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_nothing_costs_nothing():
    gaussian = dp_accounting.GaussianDpEvent(1.0)
    assert from_event(dp_accounting.NoOpDpEvent()) == Composition()
    assert from_event(dp_accounting.PoissonSampledDpEvent(0.0, gaussian)) == Composition()
    assert from_event(dp_accounting.SelfComposedDpEvent(gaussian, 0)) == Composition()


class ExponentialMechanismDpEvent:
    """As in other versions of the library; some of its accountants forget the count."""

    epsilon = 1.0


GAUSSIAN = dp_accounting.GaussianDpEvent(1.0)


@pytest.mark.parametrize(
    ("event", "named"),
    [
        (dp_accounting.GaussianDpEvent(math.nan), "noise_multiplier"),
        (dp_accounting.GaussianDpEvent(math.inf), "noise_multiplier"),
        (dp_accounting.GaussianDpEvent(0.0), "noise_multiplier"),
        (dp_accounting.LaplaceDpEvent(-1.0), "noise_multiplier"),
        (dp_accounting.ZCDpEvent(math.nan), "rho"),
        (dp_accounting.ZCDpEvent(0.1, 0.2), "xi"),
        (dp_accounting.SelfComposedDpEvent(GAUSSIAN, -3), "count"),
        (dp_accounting.SelfComposedDpEvent(GAUSSIAN, 1.5), "count"),
        (dp_accounting.PoissonSampledDpEvent(1.5, GAUSSIAN), "sampling_probability"),
        (dp_accounting.PoissonSampledDpEvent(math.nan, GAUSSIAN), "sampling_probability"),
        (dp_accounting.PoissonSampledDpEvent(0.5, dp_accounting.LaplaceDpEvent(1.0)), "event"),
        (dp_accounting.SampledWithoutReplacementDpEvent(9, 3, GAUSSIAN), "event"),
        (dp_accounting.NonPrivateDpEvent(), "event"),
        (dp_accounting.UnsupportedDpEvent(), "event"),
        (ExponentialMechanismDpEvent(), "event"),
        (None, "event"),
    ],
)
def test_what_is_not_certain_is_refused(event, named):
    with pytest.raises(InvalidInput, match=f"'{named}'"):
        from_event(event)
    with pytest.raises(InvalidInput, match=f"'{named}'"):
        from_event(dp_accounting.ComposedDpEvent([GAUSSIAN, event]))


def test_only_add_or_remove_one_is_taken():
    relations = dp_accounting.NeighboringRelation
    assert from_event(GAUSSIAN, relations.ADD_OR_REMOVE_ONE) == from_event(GAUSSIAN)
    for other in (relations.REPLACE_ONE, relations.REPLACE_SPECIAL, "replace", None):
        with pytest.raises(InvalidInput, match="'neighbouring'"):
            from_event(GAUSSIAN, other)


def test_a_release_without_a_counterpart_is_refused():
    with pytest.raises(InvalidInput, match="Screening"):
        to_event(Composition.of(Screening(5, 3.0, 2.0)))
