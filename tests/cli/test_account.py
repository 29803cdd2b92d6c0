"""`vicinal account` and `vicinal calibrate`, as their users call them."""

import json
from pathlib import Path

import pytest

from command_line import shown as run

pytestmark = pytest.mark.quick

EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"
GAUSSIAN = EXAMPLES / "figure5_gaussian.json"


def test_account_speaks_and_writes_json():
    words = run("account", GAUSSIAN)
    assert words.startswith("epsilon 4.71 at delta 1e-05")
    assert "5.68  RDP, conversion of Mironov" in words
    assert "4.71  Gaussian DP, exact  <- best" in words
    assert "4.707  lower bound" in words
    assert "one subject added or removed" in words
    price = json.loads(run("account", GAUSSIAN, "--json"))
    assert price["by_method"]["gdp"] == price["epsilon"] == pytest.approx(4.7081, abs=1e-4)


def test_calibrate_keeps_its_target():
    found = json.loads(run("calibrate", GAUSSIAN, "--epsilon", 1, "--field", "sigma", "--json"))
    assert 0.999 <= found["price"]["epsilon"] <= 1
    assert found["field"] == "sigma"
    assert "sigma of release 0" in run("calibrate", GAUSSIAN, "--epsilon", 1, "--field", "sigma")


def test_nonsense_ends_with_a_sentence_and_exit_code_2(tmp_path):
    assert "cannot be read" in run("account", tmp_path / "none.json", code=2)
    bad = tmp_path / "bad.json"
    for text, named in (
        ("{", "not valid JSON"),
        ("[]", "'plan'"),
        ('{"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": -1}]}', "releases[0].sigma"),
        ('{"delta": 1e-5, "releases": [{"kind": "gaussian", "sigma": NaN}]}', "not finite"),
    ):
        bad.write_text(text)
        assert named in run("account", bad, code=2)


def test_a_target_out_of_reach_is_refused_with_exit_code_3():
    plan = EXAMPLES / "table1_mnist.json"
    assert "'sigma'" in run("calibrate", plan, "--epsilon", 0.1, "--field", "sigma", code=3)
