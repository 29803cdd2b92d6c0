"""The missing number of a plan: on the safe side, and close to the target."""

import math
from decimal import Decimal

import pytest

from vicinal.accounting.calibration import FIELDS, calibrate
from vicinal.accounting.kinds import KINDS
from vicinal.accounting.plan import account
from vicinal.errors import InvalidInput, PrivacyRefused

SCREENING = {"kind": "screening", "k": 40, "threshold": 25, "sigma": 9, "gamma": 0.2, "count": 300}
MAXIMUM = {"kind": "noisy_max", "sigma": 12, "gamma": 0.2, "count": 150}
PLAN = {"delta": 1e-5, "releases": [SCREENING, MAXIMUM]}

CASES = [
    (PLAN, 2.0, "sigma", 0),
    (PLAN, 2.0, "gamma", 1),
    (PLAN, 3.0, "count", 1),
    ({"delta": 1e-6, "releases": [{"kind": "gaussian", "sigma": 1}]}, 0.7, "sigma", 0),
    ({"delta": 1e-6, "releases": [{"kind": "gaussian", "sigma": 9}]}, 0.7, "sensitivity", 0),
    ({"delta": 1e-5, "releases": [{"kind": "ind_knn", "B": 1}]}, 1.0, "B", 0),
    ({"delta": 1e-5, "releases": [{"kind": "multilabel", "sigma": 90}]}, 0.5, "tau", 0),
]


@pytest.mark.parametrize(("plan", "target", "field", "release"), CASES)
def test_the_target_is_kept_and_nearly_used_up(plan, target, field, release):
    answer = calibrate(plan, target, field, release)
    steps = [dict(step) for step in plan["releases"]]
    steps[release][field] = answer.value
    recomputed_epsilon = account({**plan, "releases": steps})["epsilon"]
    assert recomputed_epsilon == answer.price["epsilon"]
    assert recomputed_epsilon <= target
    if field != "count":
        assert recomputed_epsilon >= target * 0.999
        return
    steps[release][field] = answer.value + 1
    assert account({**plan, "releases": steps})["epsilon"] > target


@pytest.mark.parametrize("start", [{}, {"sigma": 0.011}, {"sigma": 1e8}])
def test_what_is_looked_for_may_be_left_out_or_far_off(start):
    plan = {"delta": 1e-5, "releases": [{"kind": "gaussian", "count": 20, **start}]}
    assert calibrate(plan, 1.0, "sigma").value == pytest.approx(16.7, rel=5e-3)


def test_a_target_that_the_rest_exceeds_is_refused_and_a_limit_that_keeps_it_is_returned():
    with pytest.raises(PrivacyRefused, match="'sigma'"):
        calibrate(PLAN, 0.3, "sigma", 1)
    free = {"delta": 1e-5, "releases": [{**MAXIMUM, "sigma": 1e5, "count": 1}]}
    assert calibrate(free, 5.0, "gamma").value == 1.0


def make_gaussian_plan(sigma):
    return {"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": sigma}]}


REFUSED = [
    *((PLAN, epsilon, "sigma", 0, "'epsilon'") for epsilon in (0, -1, math.nan, math.inf, "1")),
    (PLAN, 1.0, "colour", 0, "'field'"), (PLAN, 1.0, "sigma", 2, "'release'"),
    (PLAN, 1.0, "sigma", -1, "'release'"), (PLAN, 1.0, "B", 0, "releases[0].B"),
    ({"delta": 1e-5}, 1.0, "sigma", 0, "'releases'"), ([], 1.0, "sigma", 0, "'plan'"),
    ({"delta": 1e-5, "releases": [3]}, 1.0, "sigma", 0, "releases[0]"),
    ({**PLAN, "delta": 2}, 1.0, "sigma", 0, "'delta'"),
    *(
        (make_gaussian_plan(start), 1.0, "sigma", 0, "'releases[0].sigma' parameter must be a fin")
        for start in ("abc", "1", None, [1.0], math.nan, Decimal("sNaN"))
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "epsilon", "field", "release", "named"), REFUSED)
def test_invalid_arguments_are_refused_by_name(plan, epsilon, field, release, named):
    with pytest.raises(InvalidInput) as error:
        calibrate(plan, epsilon, field, release)
    assert named in str(error.value)


def test_every_field_is_a_field_of_some_kind():
    fields = {field for kind in KINDS.values() for field in kind.list_field_names()}
    assert set(FIELDS) <= fields | {"count"}
