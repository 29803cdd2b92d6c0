"""What plans take from public points: their dimension, and neighbours to fit it."""

import math

import numpy as np
import pytest

from made_up import plan_of
from vicinal.accounting.budget import gdp_epsilon, zcdp_budget
from vicinal.engine.noise_schedule import compute_n_neighbors, estimate_dimension, fit_n_neighbors
from vicinal.errors import PrivacyRefused
from vicinal.neighbours import RBF, Cosine, Reference
from vicinal.planning import plan as _plan
from vicinal.planning.engine_factory import create_slack_accountant
from vicinal.planning.guarantees import (
    compute_total_guarantee,
    create_ind_knn_guarantee,
    refuse_weak_plan,
)

PLAN = 60_000, 1000, 0.05, 10


def reference(dimensions, size=3000, kernel=None, width=64):
    """Return directions of so many dimensions, turned into a space of `width`."""
    rng = np.random.default_rng(dimensions)
    turned = np.linalg.qr(rng.normal(size=(width, width)))[0][: dimensions + 1]
    points = rng.normal(size=(size, dimensions + 1)) @ turned
    points /= np.linalg.norm(points, axis=1)[:, None]
    kernel = kernel or Cosine()
    return Reference(kernel, kernel.encode(points.astype(np.float32)))


@pytest.mark.parametrize("kernel", [Cosine(), RBF(1.0, 1.0)], ids=["cosine", "rbf"])
@pytest.mark.parametrize("dimensions", [2, 6, 12])
def test_the_dimension_of_a_sphere_is_found_in_any_space(dimensions, kernel):
    assert estimate_dimension(reference(dimensions, kernel=kernel), 24) == pytest.approx(
        dimensions, rel=0.2
    )


def test_more_dimensions_have_more_neighbours():
    few, many = (fit_n_neighbors(reference(d), *PLAN) for d in (4, 40))
    assert few == compute_n_neighbors(*PLAN, 3000), "few dimensions count as some"
    assert 1.3 * few < many <= PLAN[0] // (2 * PLAN[3])
    assert fit_n_neighbors(reference(4), *PLAN, 40.0) == compute_n_neighbors(*PLAN, 3000, 15, 40.0)
    assert fit_n_neighbors(reference(4), 200, *PLAN[1:]) == 10, "half the mean number of a group"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_too_few_points_tell_no_dimension(size):
    assert estimate_dimension(reference(6, size), 24) == 0.0
    assert fit_n_neighbors(reference(6, size), *PLAN) == compute_n_neighbors(*PLAN, size)


def test_points_that_are_all_alike_have_no_dimension():
    kernel = Cosine()
    points = np.tile(np.eye(1, 8, dtype=np.float32), (200, 1))
    assert estimate_dimension(Reference(kernel, kernel.encode(points)), 24) == 0.0


@pytest.mark.parametrize(
    ("declared", "delta"), [(None, 1e-5), (500, 1e-5), (10_000, 1e-5), (1_000_000, 1e-7)]
)
def test_delta_follows_the_declared_number_of_records(declared, delta):
    plan = plan_of(n_records=declared)
    assert plan.delta == pytest.approx(delta, rel=1e-12)
    assert plan.changed(n_records=10**9).delta == plan.delta  # and no estimate
    refuse_weak_plan(plan.epsilon, plan.delta, plan.n_records)
    stated = str(create_ind_knn_guarantee(plan))
    assert ("a tenth of whose inverse is delta" in stated) == (declared == 1_000_000)
    assert plan_of(n_records=declared, delta=1e-5).delta == 1e-5


@pytest.mark.parametrize("release", ["votes", "label"])
@pytest.mark.parametrize("interactions", [1, 3])
def test_budgets_grid_and_tail_add_up_to_what_is_guaranteed(release, interactions, monkeypatch):
    """Over all interactions, and audiences: no part of mu^2 or of delta is given away twice."""
    plan, priced = plan_of(3, release=release, interactions=interactions), []
    monkeypatch.setattr(_plan, "build_charge_table", lambda *given: priced.append(given))
    whole, share = zcdp_budget(1.0, 0.99e-5), 1e-7 / interactions / (1 + plan.label_only)
    assert plan.label_charges is None
    assert priced == [(plan.interaction_budget, pytest.approx(share), 3)]
    assert plan.interaction_budget * interactions == pytest.approx(whole)
    create_slack_accountant(plan).check_slack(share * (1 - 1e-6))
    with pytest.raises(PrivacyRefused):
        create_slack_accountant(plan).check_slack(share * (1 + 1e-6))
    total, _ = compute_total_guarantee([plan, plan])
    assert total == pytest.approx(gdp_epsilon(2 * math.sqrt(whole), 0.98e-5))
