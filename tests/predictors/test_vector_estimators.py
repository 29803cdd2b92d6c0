"""Number and label-set estimators: against a literal transcription, and in typical use."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from literal import LiteralIndKNN, check_charges, run_literal
from vicinal import IndKNNMultiLabelClassifier, IndKNNRegressor
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.planning.plan import IndKNNPlan

N, D, Q = 60, 5, 25


def world(seed=7):
    """Return clustered data small enough for the slow algorithm."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, D))

    def near(size):
        which = rng.integers(0, 3, size)
        return which, centres[which] + 0.6 * rng.normal(size=(size, D))

    which, X = near(N)
    return which, X, near(Q)[1], near(40)[1], rng


def cases(which):
    """Return estimators with what their records carry."""
    shared = {
        "n_queries": Q, "n_neighbors": 12, "n_records": N, "simulation_seed": 3,
    }  # fmt: skip
    signs = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]])[which]
    age = {"age": (0, 90), "back": (0, 1)}
    return {
        "number": (IndKNNRegressor((-1, 3), **shared), which + 0.3),
        "typical": (IndKNNRegressor((-1, 3), typical_range=(0, 1), **shared), which + 0.3),
        "numbers": (IndKNNRegressor(age, **shared), np.stack([20.0 * which, which > 0], axis=1)),
        "labels": (IndKNNMultiLabelClassifier(["a", "b", "c"], **shared), signs),
        "tau": (IndKNNMultiLabelClassifier(["a", "b", "c"], tau=2.0, **shared), signs),
    }


NAMES = ["number", "typical", "numbers", "labels", "tau"]


def carried(model):
    """Return every record's vector as the literal algorithm takes it."""
    vectors = model._shard.subject_table.targets
    return [
        dict(zip(vectors.coordinates[a:b].tolist(), vectors.values[a:b].tolist(), strict=True))
        for a, b in zip(vectors.starts[:-1], vectors.starts[1:], strict=True)
    ]


@pytest.mark.parametrize("several", [False, True], ids=["one record each", "several records"])
@pytest.mark.parametrize("multiplier", [0.05, 2.0], ids=["budgets run out", "budgets last"])
@pytest.mark.parametrize("execution", ["block", "sequential"])
@pytest.mark.parametrize("name", NAMES)
def test_sums_and_charges_are_those_of_the_literal_algorithm(name, execution, multiplier, several):
    which, X, queries, public, rng = world()
    model, y = cases(which)[name]
    subjects = rng.integers(0, N // 3, N) if several else np.arange(N)
    model.set_params(noise_multiplier=multiplier, execution=execution)
    model.fit(X, y, subjects, public=public)
    engine = model._engine
    kernel, steps = engine.votes.kernel, engine.votes.grid.steps
    literal = LiteralIndKNN(
        kernel.encode(X), carried(model), subjects.tolist(), engine.votes.n_coordinates,
        engine.votes.budget, grid=steps,
    )  # fmt: skip
    answers = run_literal(literal, engine, queries, 3, counts=[12.0] * Q)
    sums = model.query(queries).votes * steps
    np.testing.assert_array_equal(sums, answers)
    check_charges(engine, literal, subjects, multiplier)


@pytest.mark.parametrize("name", NAMES)
def test_who_comes_and_goes_changes_nobody_elses_charge(name):
    """Company: with others erased and added in between, a subject's charges stay what they were."""
    which, X, queries, public, _ = world(9)
    model, y = cases(which)[name]
    subjects = np.repeat(np.arange(N // 2), 2)
    found = []
    for disturbed in (False, True):
        one = clone(model).set_params(noise_multiplier=0.1).fit(X, y, subjects, public=public)
        one.query(queries[:10])
        if disturbed:
            assert one.erase(np.arange(5, 20)) == 30
        one.query(queries[10:])
        ledger = one._shard.ledger
        found.append([ledger.remaining[ledger.list_slots([s])[0]] for s in (0, 1, 2, 3, 4, 25, 29)])
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def large():
    """Return records whose numbers and labels follow from where they are."""
    rng = np.random.default_rng(1)
    X, public, queries = (rng.normal(size=(size, 3)) for size in (6000, 600, 40))
    return X, public, queries, np.abs(X[:, 0])


def test_numbers_are_near_the_truth(large):
    X, public, queries, y = large
    model = IndKNNRegressor(
        (0, 3), 8.0, n_queries=40, kernel="rbf", simulation_seed=0, n_records=6000
    ).fit(X, y, public=public)
    mean, error = model.predict(queries, return_std=True)
    assert np.corrcoef(mean, np.abs(queries[:, 0]))[0, 1] > 0.9
    assert (error > 0).all()
    assert model.n_answers_ == 40


def test_errors_are_as_large_as_the_noise_makes_them(large):
    """The same neighbourhood again and again: the answers spread as much as they are said to."""
    X, public, queries, y = large
    model = IndKNNRegressor(
        (0, 3), 30.0, n_queries=400, n_neighbors=300, noise_multiplier=0.5, simulation_seed=1,
        n_records=6000,
    )  # fmt: skip
    model.fit(X, y, public=public)
    mean, error = model.predict(np.tile(queries[:1], (120, 1)), return_std=True)
    assert 0.75 < mean.std() / error.mean() < 1.3


def test_logarithms_and_several_targets(large):
    X, public, queries, y = large
    model = IndKNNRegressor((1, 30), 8.0, n_queries=40, scale="log", simulation_seed=0)
    values = model.fit(X, np.exp(y), public=public).predict(queries)
    assert ((values >= 1) & (values <= 30)).all()
    both = IndKNNRegressor({"far": (0, 3), "left": (0, 1)}, 8.0, n_queries=80, simulation_seed=0)
    both.fit(X, np.stack([y, X[:, 1] < 0], axis=1), public=public)
    assert both.predict(queries).shape == (40, 2)


def test_labels_and_shares(large):
    X, public, queries, _ = large
    truth = queries[:, :2] > 0
    for tau in (None, 2.0):
        model = IndKNNMultiLabelClassifier(
            ["right", "up"], 8.0, n_queries=120, tau=tau, simulation_seed=0
        ).fit(X, X[:, :2] > 0, public=public)
        assert (model.predict(queries) == truth).mean() > 0.85
        shares = model.predict_proba(queries)
        assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("number", [np.nan] * N), ("number", [np.inf] * N), ("number", np.zeros((N, 2))),
        ("number", ["a"] * N), ("number", None), ("numbers", np.zeros(N)),
        ("labels", np.full((N, 3), 2)), ("labels", np.zeros((N, 2))), ("labels", None),
    ],
)  # fmt: skip
def test_bad_targets_are_refused_before_anything_changes(name, y):
    which, X, _, public, _ = world()
    model = cases(which)[name][0]
    with pytest.raises(InvalidInput, match="'y'"):
        model.fit(X, y, public=public)
    assert not hasattr(model, "budget_")


@pytest.mark.counts_interactions
def test_a_second_interaction_is_refused_and_the_guarantee_names_what_is_public():
    which, X, _, public, _ = world(77)
    y = which + 0.25
    model = IndKNNRegressor((-1, 3), n_records=N).fit(X, y, public=public)
    assert "bounds of the targets" in " ".join(model.guarantee().public)
    model.predict(X[:1])
    with pytest.raises(PrivacyRefused):
        IndKNNRegressor((-1, 3), n_records=N).fit(X, y, public=public)


TYPICAL = {"bounds": (500, 300_000), "scale": "log", "typical_range": (5_000, 80_000)}


def restore_plan(**parameters):
    return IndKNNPlan.from_estimator(IndKNNRegressor(n_queries=5, **parameters))


def test_numbers_at_the_ends_of_a_typical_range_are_as_long_as_planned_and_the_longest_have_1():
    settings = restore_plan(**TYPICAL)
    y = np.array([500, 5_000, 20_000, 80_000, 300_000])
    lengths = np.linalg.norm(settings.target.encode(y, 5).to_dense(), axis=1)
    planned = settings.target.typical_norm
    np.testing.assert_allclose(lengths[[1, 3]], planned, atol=1e-8)
    assert lengths[2] < planned < lengths[0] <= lengths.max() <= 1
    assert lengths.max() == pytest.approx(1, abs=1e-8)
    assert settings.typical_charge_ratio == planned**2
    assert restore_plan(bounds=(500, 300_000)).typical_charge_ratio == 1


@pytest.mark.parametrize("ends", [(0, 1e-3), (2.95, 3)])
def test_a_typical_range_that_no_plan_can_count_on_is_refused(ends):
    """A public point could not pay for one answer, and planning failed after the training."""
    model = IndKNNRegressor((-3, 3), typical_range=ends)
    with pytest.raises(InvalidInput, match="a fiftieth of the 'bounds'"):
        model.fit(np.zeros((4, 1)), np.zeros(4), public=np.ones((20, 1)))


def test_numbers_of_a_typical_range_are_read_back_as_they_were():
    settings = restore_plan(**TYPICAL)
    y = np.array([700.0, 5_000.0, 21_000.0, 250_000.0])
    sums = 1e6 * settings.target.encode(y, 4).to_dense()
    found = settings.target.compute_answers(sums, np.full(4, 1e-3))
    np.testing.assert_allclose(found.predictions[:, 0], y, rtol=1e-6)
    plain = restore_plan(bounds=(500, 300_000), scale="log")
    wide = plain.target.compute_answers(
        1e6 * plain.target.encode(y, 4).to_dense(), np.full(4, 1e-3)
    )
    # Noise is planned smaller by the typical length.
    ratios = settings.target.typical_norm * found.errors / wide.errors
    assert ratios[1] < 0.75
    assert ratios[2] < 0.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"typical_range": (400, 80_000)}, "within the 'bounds'"),
        ({"typical_range": {"income": (5_000, 80_000)}}, "same targets"),
    ],
)
def test_a_typical_range_that_does_not_fit_is_refused(more, message):
    with pytest.raises(InvalidInput, match=message):
        restore_plan(**{**TYPICAL, **more})


@pytest.mark.parametrize(("slope", "is_noisy"), [(0.0, True), (7.5, False)])
def test_answers_that_are_mostly_noise_are_said_to_be(slope, is_noisy):
    """Fails if predictions worse than a constant are returned without a warning."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 5))
    y = np.clip(3 + slope * X[:, 0] + np.sqrt(62 - slope**2) * rng.normal(size=1200), -20, 25)
    model = IndKNNRegressor(bounds=(-20, 25), epsilon=1.0, n_queries=200, simulation_seed=0)
    model.fit(X[:800], y[:800], public=X[800:1000])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.predict(X[1000:])
        model.predict(X[1000:1010])
    messages = [str(warning.message) for warning in caught]
    assert [message.startswith("The answers for 'number' differ") for message in messages] == (
        [True] if is_noisy else []
    )
