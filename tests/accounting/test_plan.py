"""Plans: parsing, refusal of invalid fields by name, prices and lower bounds."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from experiments.accounting.table import as_text, table
from vicinal.accounting.kinds import KINDS
from vicinal.accounting.plan import Plan, account
from vicinal.errors import InvalidInput

ROOT = Path(__file__).parents[2]
EXAMPLES = {
    path.stem: json.loads(path.read_text())
    for path in sorted((ROOT / "examples" / "plans").glob("*.json"))
}

# One good release of every kind.
GOOD = {
    "screening": {"k": 300, "classes": 10, "threshold": 210, "sigma": 85, "gamma": 0.25},
    "noisy_max": {"sigma": 20, "gamma": 0.2},
    "gaussian": {"sigma": 85, "sensitivity": 1, "gamma": 1},
    "multilabel": {"tau": 10, "sigma": 100, "gamma": 0.1},
    "gnmax": {"sigma": 40},
    "confident_gnmax": {
        "teachers": 250, "threshold": 200, "sigma_screen": 150, "sigma_votes": 40, "answered": 3,
    },
    "ind_knn": {"epsilon": 1, "model_share": 0.5},
    "training": {"steps": 40, "sigma": 30, "gamma": 0.5},
    "laplace": {"scale": 20, "sensitivity": 1.5, "cells": 3},
    "discrete_laplace": {"scale": 20, "sensitivity": 2, "cells": 3},
    "discrete_gaussian": {"sigma": 20, "sensitivity": 2, "cells": 3},
    "renyi": {"orders": [2, 5, 30], "rdp": [0.01, 0.03, 0.2], "cells": 1},
    "pld": {"losses": [-0.1, 0.1], "probabilities": [0.47502081252106, 0.52497918747894]},
}  # fmt: skip

# The powers of ten are no doubles, and the last one has too many digits to be printed.
NUMBERS = (math.nan, math.inf, -math.inf, -1, "1", None, True, [], 10**400, 10**5000)
BAD = {
    "k": (*NUMBERS, 0, 2.5, 10**7), "classes": (*NUMBERS, 1, 2.5),
    "threshold": (math.nan, math.inf, "1", None, True, 1e9), "sigma": (*NUMBERS, 0),
    "gamma": (*NUMBERS, 0, 1e-320, 1.01), "sensitivity": (*NUMBERS, 0),
    "steps": (*NUMBERS, 0, 2.5, 10**7),
    "model_share": (*NUMBERS, 0, 1), "model_steps": (*NUMBERS, 0, 2.5, 10**7), "tau": (*NUMBERS, 0),
    "scale": (*NUMBERS, 0), "teachers": (*NUMBERS, 0, 2.5), "sigma_screen": (*NUMBERS, 0),
    "sigma_votes": (*NUMBERS, 0), "answered": (*NUMBERS, 10**6, 0.5), "epsilon": (*NUMBERS, 0),
    "delta": (*NUMBERS, 0, 1), "B": (*NUMBERS, 0), "release": (None, "scores", 1),
    "beta": (*NUMBERS, 0, 4.5), "count": (*NUMBERS, 0, 2.5, 10**10),
    "cells": (*NUMBERS, 0, 2.5, 10**9),
    "orders": (*NUMBERS, [1, 2, 3], [2, 2, 3], [3, 2, 1], [2, math.nan, 4], ["2", 3, 4]),
    "rdp": (*NUMBERS, [0.1], [0.1, -0.1, 0.1], [0.1, math.nan, 0.1], [math.inf] * 3),
    "losses": (*NUMBERS, [0.1, -0.1], [0, math.inf], [math.nan] * 2, [0, 1e3]),
    "probabilities": (*NUMBERS, [0.2] * 5, [1.1, -0.1], [math.nan] * 2, [0, 1]),
    "infinite": (math.nan, math.inf, -0.1, 1, "1", None, True, []),
}  # fmt: skip


# By Mironov, Balle et al. and PLD, and the lower bound: Figure 5 and Table 1 of ZYCW20.
FIGURE_5_AND_TABLE_1 = [
    [5.676, 5.083, 4.708, 4.708],
    [1.313, 1.084, 0.993, 0.991],
    [4.438, 3.925, 3.682, 3.628],
    [1.042, 0.848, 0.786, 0.775],
    [1.163, 0.953, 0.872, 0.870],
]


def release(kind, **changes):
    return {"kind": kind, "count": 10, **GOOD[kind], **changes}


def plan(*releases, delta=1e-5):
    return {"delta": delta, "releases": list(releases)}


def test_every_kind_has_an_example_and_every_field_a_bad_value():
    assert set(GOOD) == set(KINDS)
    assert {field for kind in KINDS.values() for field in kind.list_field_names()} <= set(BAD)


@pytest.mark.parametrize("kind", GOOD)
def test_every_kind_is_priced(kind):
    price = account(plan(release(kind)))
    assert 0 < price["epsilon"] < math.inf
    assert price["epsilon"] == min(price["by_method"].values())
    assert price["releases"][0]["share"] == 1
    assert price["lower"] is None or price["lower"] <= price["epsilon"]
    assert "one subject added or removed" in price["neighbouring"]
    assert all(price["assumptions"])
    json.dumps(price, allow_nan=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_invalid_field_is_refused_by_name(kind):
    for field in (*KINDS[kind].list_field_names(), "count"):
        for bad in BAD[field]:
            with pytest.raises(InvalidInput) as error:
                Plan.from_dict(plan(release("gaussian"), release(kind, **{field: bad})))
            assert f"'releases[1].{field}'" in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_and_unknown_fields_are_named(kind):
    with pytest.raises(InvalidInput, match=r"'releases\[0\]\.colour' parameter is not known"):
        Plan.from_dict(plan(release(kind, colour=1)))
    for field in KINDS[kind].list_required_fields():
        incomplete = {key: value for key, value in release(kind).items() if key != field}
        with pytest.raises(InvalidInput, match=rf"'releases\[0\]\.{field}' parameter is missing"):
            Plan.from_dict(plan(incomplete))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ([], "'plan'"),
        ({"releases": []}, "'delta'"),
        ({"delta": 1e-5}, "'releases'"),
        ({"delta": 1e-5, "releases": []}, "'releases'"),
        ({"delta": 1e-5, "releases": {}}, "'releases'"),
        ({"delta": 1e-5, "releases": [1]}, "'releases[0]'"),
        ({"delta": 1e-5, "releases": [{}]}, "'releases[0].kind'"),
        ({"delta": 1e-5, "releases": [{"kind": "magic"}]}, "'releases[0].kind'"),
        ({"delta": math.nan, "releases": [release("gnmax")]}, "'delta'"),
        ({"delta": 1e-5, "releases": [release("gnmax")], "epsilon": 1}, "'epsilon'"),
        (plan(release("ind_knn", B=1)), "'releases[0].B'"),
        (plan({"kind": "ind_knn"}), "'releases[0].epsilon'"),
        (plan({"kind": "ind_knn", "B": 1, "delta": 1e-6}), "'releases[0].delta'"),
        (plan({"kind": "ind_knn", "B": 1, "release": "label"}), "'releases[0].B'"),
        (plan(release("gaussian", sigma=0.02, sensitivity=1e6)), "'releases[0]'"),
    ],
)
def test_other_nonsense_is_refused_by_name(given, named):
    with pytest.raises(InvalidInput) as error:
        Plan.from_dict(given)
    assert named in str(error.value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_plan_is_restored_to_identical_bits(name):
    plan = Plan.from_dict(EXAMPLES[name])
    assert Plan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


@pytest.mark.parametrize("name", ["refreshed_model", "table1_mnist", "ten_releases"])
def test_a_step_alone_costs_what_a_plan_of_it_costs(name):
    """A looser method for one than for all stated 1.286 for a step of a plan at 1.176."""
    price = account(EXAMPLES[name])
    for release, step in zip(EXAMPLES[name]["releases"], price["releases"], strict=True):
        plan = Plan.from_dict({**EXAMPLES[name], "releases": [release]})
        assert step["alone"] == plan.price(lower=False)["epsilon"]
        assert step["alone"] <= price["epsilon"]


@pytest.mark.parametrize(
    ("kind", "composed", "single"),
    [
        ("training", {"steps": 40, "count": 3}, {"steps": 120, "count": 1}),
        ("discrete_gaussian", {"cells": 3, "count": 2}, {"cells": 1, "count": 6}),
    ],
)
def test_components_are_counted_once_each(kind, composed, single):
    prices = [account(plan(release(kind, **fields))) for fields in (composed, single)]
    assert prices[0]["by_method"] == prices[1]["by_method"]


def test_an_individual_filter_keeps_its_epsilon():
    votes, label = (
        account(plan(release("ind_knn", release=released, count=1)))["epsilon"]
        for released in ("votes", "label")
    )
    assert votes == pytest.approx(1, rel=1e-6)
    assert 1 <= label < 1.0002  # the tail of labels is composed, not subtracted from delta


def test_the_table_of_the_documentation_is_what_the_command_prints():
    rows = table()
    figures = [[row[name] for name in ("rdp_mironov", "rdp", "pld", "lower")] for row in rows[:5]]
    assert figures == pytest.approx(np.array(FIGURE_5_AND_TABLE_1), abs=6e-4)
    _, _, *lines = as_text(rows).splitlines()
    file = ROOT / "docs" / "reference" / "papers-epsilon.csv"
    _, *cells = csv.reader(file.read_text().splitlines())
    assert cells == [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_a_screening_that_is_never_passed_costs_nothing():
    """Its loss of passing has no double as a ratio of probabilities."""
    screening = {"kind": "screening", "k": 2, "threshold": 200, "sigma": 0.5}
    found = account({"delta": 1e-5, "releases": [screening]})
    assert found["lower"] == found["epsilon"] == 0.0
