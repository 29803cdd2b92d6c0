"""Plans for numbers and several labels, from public facts."""

import json
from functools import partial

import numpy as np
import pytest

from command_line import invoked
from vicinal.planning.plan import IndKNNPlan
from vicinal.planning.plan_simulation import PlanChoice
from vicinal.targets.kinds import declared_target

TARGETS = {
    "numbers": {"bounds": {"age": (0, 110), "stay": (0, 30)}},
    "typical": {"bounds": (500, 300_000), "scale": "log", "typical_range": (5_000, 80_000)},
    "log": {"bounds": (500, 300_000), "scale": "log"},
    "labels": {"labels": ["a", "b", "c"]},
    "tau": {"labels": ["a", "b", "c"], "tau": 2.0},
}


def request(epsilon, target):
    given = {"n_records": 20_000, "n_queries": 500, "epsilon": epsilon}
    return IndKNNPlan.of_target(declared_target(target), given)


@pytest.mark.parametrize("target", TARGETS)
def test_more_budget_is_expected_to_give_smaller_errors(target):
    choices = [PlanChoice.from_plan(request(epsilon, TARGETS[target])) for epsilon in (0.5, 2.0)]
    few, many = [choice.list_expected_errors() for choice in choices]
    assert len(few) == {"numbers": 2, "typical": 1, "log": 1}.get(target, 3)
    for weak, strong in zip(few, many, strict=True):
        assert 0 < strong.error < weak.error


def test_the_expected_error_is_what_noise_does():
    wish = request(1.0, {"bounds": (0, 110)})
    choice = PlanChoice.from_plan(wish)
    (stated,) = choice.list_expected_errors()
    sums = choice.n_neighbors * wish.target.encode([stated.value], 1).to_dense()
    noise = choice.noise * np.random.default_rng(0).normal(size=(20_000, 2))
    found = wish.target.compute_answers(sums + noise, np.full(20_000, choice.noise)).predictions
    assert found.std() == pytest.approx(stated.error, rel=0.05)


GIVEN = {
    "numbers": ["--target", "age=0..110"],
    "labels": ["--labels", ",".join(f"l{i}" for i in range(30)), "--tau", 5],
}


planned = partial(invoked, "plan", "--records", 20_000, "--queries", 500)


@pytest.mark.parametrize("kind", GIVEN)
def test_the_command_says_what_to_expect(kind):
    found = json.loads(planned(*GIVEN[kind], "--json").stdout)
    assert all(each["error"] > 0 for each in found["plan"]["expected"])
    assert len(found["alternatives"]) == 4
    assert "expected" in planned(*GIVEN[kind]).stdout


BAD = {
    "nothing": [],
    "two": ["--target", "age=0..110", "--classes", 2],
    "two targets": ["--target", "age=0..110", "--labels", "a,b"],
    "order": ["--target", "age=5..1"],
    "another": ["--labels", "a,b,c", "--scale", "log"],
    "release": ["--target", "age=0..110", "--release", "label"],
}


@pytest.mark.parametrize("case", BAD)
def test_bad_plans_are_refused(case):
    assert "Traceback" not in planned(*BAD[case], code=2).output
