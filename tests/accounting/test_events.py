"""Events of dp-accounting: exact where both know a release, refused everywhere else."""

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from vicinal.accounting._composition import Composition, compose, to_event
from vicinal.accounting._counts import LaplaceNumber
from vicinal.accounting._gaussian import SubsampledGaussian
from vicinal.accounting._screening import Screening
from vicinal.errors import InvalidInput

EVERYTHING = compose(
    [
        Composition.of(SubsampledGaussian(3.0, 0.2), 40),
        Composition.of(SubsampledGaussian(25.0), 7),
        Composition.of(LaplaceNumber(0.1), 2),
    ]
)
ORDERS = [2, 3, 8, 30]


def test_their_rdp_of_our_event_is_our_rdp():
    theirs = RdpAccountant(ORDERS).compose(to_event(EVERYTHING))
    ours = EVERYTHING.rdp(np.array(ORDERS, dtype=float))
    assert ours == pytest.approx(theirs._rdp, rel=1e-9)


def test_their_pld_of_our_event_is_close_to_ours():
    cost = Composition.of(SubsampledGaussian(3.0, 0.2), 40)
    theirs = PLDAccountant(value_discretization_interval=1e-3).compose(to_event(cost))
    assert cost.to_epsilon(1e-5, "pld") == pytest.approx(theirs.get_epsilon(1e-5), rel=3e-3)


def test_a_release_without_a_counterpart_is_refused():
    with pytest.raises(InvalidInput, match="Screening"):
        to_event(Composition.of(Screening(5, 3.0, 2.0)))
