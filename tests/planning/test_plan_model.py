"""Plans with a private model, simulated on labelled public points."""

import json
import math

import numpy as np
import pytest

from command_line import printed
from made_up import clouds, plan_of
from vicinal import IndKNNClassifier
from vicinal.linear.private_model import MAX_TRAINING_SHARE
from vicinal.neighbours import Reference
from vicinal.planning import plan_simulation as _plan_simulation
from vicinal.planning.engine_factory import create_kernel
from vicinal.planning.plan_simulation import PlanChoice, SimulationSetup, simulate, simulate_model

N, D, CLASSES = 2000, 5, 3
PLAN = plan_of(CLASSES, n_records=N, n_queries=200, epsilon=4.0, release="label", model_share=0.7)
R, LABELS = clouds(1, 400, D)


def create_setup(rows=R, labels=LABELS):
    points = rows.astype(np.float32)
    kernel = create_kernel(PLAN, points)
    reference = Reference(kernel, kernel.encode(points))
    return SimulationSetup(reference, labels, np.arange(len(labels)), CLASSES)


@pytest.fixture(scope="module")
def simulated_model():
    return simulate_model(create_setup(), PLAN, 0)


def test_it_plays_what_fit_finds(simulated_model):
    X, y = clouds(0, N, D)
    fitted = IndKNNClassifier(
        range(CLASSES), PLAN.epsilon, n_queries=PLAN.n_queries, release="label", n_records=N,
        model_share=PLAN.model_share, simulation_seed=0,
    ).fit(X, y, public=R)  # fmt: skip
    spent_share = fitted._model.typical_spent_share
    assert simulated_model.budget_share == pytest.approx(1 - spent_share, abs=0.1)
    same = simulated_model.predicted.values.argmax(axis=1) == fitted.model_probabilities(R).argmax(
        axis=1
    )
    assert same.mean() > 0.95
    assert (~simulated_model.is_certain).mean() == pytest.approx(0.1, abs=0.02)
    choice = PlanChoice.from_plan(
        PLAN, create_setup().with_simulated_model(PLAN, 0).reference, simulated_model.budget_share
    )
    assert choice.multiplier == pytest.approx(fitted.noise_multiplier_, rel=0.25)


def test_no_point_is_judged_by_a_model_that_saw_its_label(monkeypatch):
    seen, honest = [], _plan_simulation._train_model

    def record_rows(X, labels, others, *rest):
        seen.append((X.copy(), others.copy()))
        return honest(X, labels, others, *rest)

    monkeypatch.setattr(_plan_simulation, "_train_model", record_rows)
    points = create_setup().reference.points
    simulate_model(create_setup(), PLAN, 3)
    (first, judged), (second, others) = seen
    assert len(first) + len(judged) == len(points)
    np.testing.assert_array_equal(first, others)
    np.testing.assert_array_equal(judged, second)


def test_a_plan_is_played_through_beside_the_model(simulated_model):
    setup_beside = create_setup().with_simulated_model(PLAN, 0)
    choice = PlanChoice.from_plan(PLAN, setup_beside.reference, simulated_model.budget_share)
    outlook, again = (simulate(setup_beside, choice, 5) for _ in range(2))
    assert outlook == again
    assert 0 < outlook.asked <= 0.1
    assert outlook.accuracy > 0.85
    assert outlook.agreement > 0.9
    assert 0 < outlook.used < 1


def test_the_command_plays_it_where_labels_are_real(tmp_path):
    np.savez(tmp_path / "points.npz", x=R.astype(np.float32), y=LABELS)
    options = ("--records", "2000", "--queries", "200", "--classes", "3", "--epsilon", "4")
    setup_beside = ("--public", str(tmp_path / "points.npz"), "--release", "label", "--json")
    found = [
        printed("plan", *options, *setup_beside, "--model-share", ".7", *more)
        for more in ((), ("--label", "y"))
    ]
    blind, real = (json.loads(each)["plan"] for each in found)
    assert blind["outlook"] is None
    assert real["outlook"]["accuracy"] > 0.85
    # The part of its .7 that training is not expected to use pays for votes.
    least = blind["noise_multiplier"] * math.sqrt(0.3)
    assert least < real["noise_multiplier"] <= blind["noise_multiplier"]


def test_a_plan_has_the_rule_that_fit_has_with_components_of_a_kernel():
    """With many features there are such components; a plan promises less than fit finds."""
    width = 64
    public, labels = clouds(1, 400, width)
    setup = create_setup(public, labels)
    known = PLAN.changed(n_public=len(R))
    share = known.replanned(model_share=0).automatic_model_share
    assert share == MAX_TRAINING_SHARE
    plan = known.replanned(model_share=share)
    setup_beside = setup.with_simulated_model(plan, 0)
    fitted = IndKNNClassifier(
        range(CLASSES), plan.epsilon, n_queries=plan.n_queries, release="label", n_records=N,
        model_share="auto", simulation_seed=0,
    ).fit(*clouds(0, N, width), public=public)  # fmt: skip
    assert fitted.model_share_ == share
    assert fitted._model.model.features.kernel is not None
    choice = PlanChoice.from_plan(plan, setup_beside.reference, setup_beside.model.budget_share)
    assert choice.plan.n_private_answers == fitted._engine.model_gate.max_private_queries == 20
    assert (~setup_beside.model.is_certain).mean() == pytest.approx(0.1, abs=0.02)
    assert setup_beside.model.budget_share <= 1 - fitted._model.typical_spent_share + 0.03


@pytest.mark.parametrize("refreshes", [0, 3])
def test_what_trainings_leave_is_what_fit_leaves_for_votes(refreshes, monkeypatch):
    """Fails if one training of several is taken for all of them."""
    models, honest = [], _plan_simulation._train_model
    monkeypatch.setattr(
        _plan_simulation, "_train_model", lambda *rest: models.append(honest(*rest)) or models[-1]
    )
    plan = PLAN.replanned(model_refreshes=refreshes)
    left = simulate_model(create_setup(), plan, 3).budget_share
    used = np.mean([model.typical_spent_share for model in models]) * (1 + refreshes)
    assert left == pytest.approx(1 - used)
    assert used > 0
