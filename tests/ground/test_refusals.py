"""A refusal gives nothing back and tells nothing."""

import gc
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score

import store_tools as tools
from vicinal import IndKNNClassifier, NoisySGDClassifier, PATEClassifier, PrivateKNNClassifier
from vicinal.accounting.budget import UNITS
from vicinal.accounting.label_only import LINE_GRID
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.interactions.fit_registry import REGISTRY
from vicinal.interactions.row_matching import RecordDigests
from vicinal.labelling import PrivateKNNLabeller, default_plan
from vicinal.mechanisms.votes import VoteRelease
from vicinal.progress import show_progress

counts = pytest.mark.counts_interactions
Q, R, X, Y = tools.Q, tools.R, tools.X, tools.Y
IDS = np.arange(len(X)) // 2


def ind_knn(**given):
    plan = {"epsilon": 4.0, "n_queries": 60, "n_records": 300, "noise_multiplier": 1.5}
    return IndKNNClassifier(range(3), **{**plan, **given})


ESTIMATORS = {
    "Ind-KNN": ind_knn,
    "labels": lambda **given: ind_knn(release="label", **given),
    "Private-kNN": lambda **given: PrivateKNNClassifier(range(3), 20, 0.5, n_queries=9, **given),
    "PATE": lambda **given: PATEClassifier(range(3), 5, n_queries=9, **given),
    "NoisySGD": lambda **given: NoisySGDClassifier(range(3), n_steps=2, **given),
}
every_estimator = pytest.mark.parametrize("made", ESTIMATORS.values(), ids=ESTIMATORS)


def fitted(estimator, X=X, Y=Y, subjects=None, public=R):
    if isinstance(estimator, PATEClassifier):
        return estimator.fit(X, Y, subjects)
    return estimator.fit(X, Y, subjects, public)


# ------------------------------------------------------------ private counts


def counted(**given):
    return ind_knn(neighbor_count="private", n_neighbors=100, **given)


@pytest.mark.parametrize("release", ["votes", "label"])
def test_the_grid_fits_the_smallest_count(release):
    """Fails if it fits the typical one: at K = 30 labels had .205 of the steps that they need."""
    engine = fitted(counted(release=release))._engine
    assert engine.min_noise == pytest.approx(1.5 * np.sqrt(30))
    assert engine.votes.prepare_release(np.array([engine.min_noise])).scales[0] >= LINE_GRID


def test_too_little_noise_for_a_label_is_refused():
    votes = fitted(ind_knn(release="label"))._engine.votes
    with pytest.raises(InvalidInput, match="2\\^22"):
        votes.prepare_release(np.array([2.0, 0.9]) * LINE_GRID / votes.grid.steps)


def tight(engine, answers, count=30.0):
    """Leave room in the slack for so many answers at a count."""
    noise = engine.noise_multiplier * np.sqrt(count)
    slack_per_answer = engine.counter.slack_per_count + engine.votes.bound_slack(noise)
    engine.slack._limit = answers * slack_per_answer * (1 + 1e-6)


@pytest.mark.parametrize("count", [30.0, 1e4])
@pytest.mark.parametrize("execution", ["block", "sequential"])
def test_no_noisy_count_decides_a_refusal(count, execution, monkeypatch):
    """Fails if a query is refused or charged by what its count, which is drawn first, came to."""
    classifier = fitted(counted(execution=execution))
    engine = classifier._engine
    tight(engine, 10)
    before = engine.shard.ledger.remaining.copy()
    monkeypatch.setattr(
        type(engine.counter), "publish", lambda _, steps: np.full(len(steps), count)
    )
    with pytest.raises(PrivacyRefused, match="grid"):
        classifier.predict(Q[:11])
    np.testing.assert_array_equal(engine.shard.ledger.remaining, before)
    classifier.predict(Q[:10])
    assert (engine.shard.ledger.remaining < before).any()


def test_a_huge_count_is_answered_with_the_most_noise():
    """Fails if a count so large that arithmetic ends refuses the query that it was drawn for."""
    engine = fitted(counted())._engine
    release = engine._plan_release(np.array([1e300]))
    assert release.scales[0] == 1 << 40


def test_three_hundred_refusals_are_decided_by_the_plan(tmp_path):
    """Fails if a store answers, or refuses and refunds, by the noisy count."""
    with tools.make(tmp_path / "store", neighbor_count="private", n_neighbors=40) as store:
        tight(store._audience_states["default"].engine, 5)
        charged = tools.remaining(store)
        for start in range(300):
            with pytest.raises(PrivacyRefused, match="grid"):
                store.predict(Q[:6] + 1e-3 * start)
        np.testing.assert_array_equal(tools.remaining(store), charged)
        assert len(store.predict(Q[:5]).labels) == 5


@pytest.mark.parametrize("fault", [ZeroDivisionError, KeyboardInterrupt, PrivacyRefused])
def test_what_was_charged_for_a_block_that_broke_off_is_durable(tmp_path, monkeypatch, fault):
    """Fails if noise was drawn, the answer refused, and the charge given back."""
    publish = VoteRelease.publish

    def break_off(release, sums):
        publish(release, sums)
        raise fault

    with tools.make(tmp_path / "store", neighbor_count="private", n_neighbors=40) as store:
        with monkeypatch.context() as patch:
            patch.setattr(VoteRelease, "publish", break_off)
            with pytest.raises(fault):
                store.predict(Q[:3])
        remaining = tools.remaining(store)
        assert (remaining < UNITS).any()
        durable = store._store.ledger.audiences["default"].account.durable
        np.testing.assert_array_equal(remaining, durable)
    with tools.Store.open(tmp_path / "store") as again:
        assert again.verify()
        np.testing.assert_array_equal(tools.remaining(again), remaining)
        assert len(again.predict(Q[:3]).labels) == 3


# ------------------------------------------------------------ progress


def steps_of(records, monkeypatch):
    monkeypatch.setattr("vicinal.mechanisms.private_knn._MAX_HITS", 30 * 50)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(records, 2)), rng.integers(0, 2, records)
    steps = []
    classifier = PrivateKNNClassifier(range(2), 5, 1.0, n_queries=300, simulation_seed=0).fit(X, y)
    with show_progress(lambda *_: steps.append):
        classifier.predict(rng.normal(size=(300, 2)))
    return steps


def test_progress_does_not_follow_the_number_of_records(monkeypatch):
    """Fails if one record more shows in the steps: it did at 16,083 records of the usual size."""
    assert steps_of(24, monkeypatch) == steps_of(25, monkeypatch) == [256, 44]


def test_errors_do_not_say_how_many_records_there_are():
    for made, labels in ((ind_knn(), Y[:7]), (PrivateKNNClassifier(range(3), tau=2), Y[:7])):
        with pytest.raises(InvalidInput, match="'y'") as refused:
            fitted(made, X, labels)
        assert str(len(X)) not in str(refused.value)


# ------------------------------------------------------------ one interaction


@counts
@every_estimator
def test_a_second_interaction_is_refused_and_says_what_to_do(made):
    asked = fitted(made())
    if not isinstance(asked, NoisySGDClassifier):
        asked.predict(Q[:1])
    for other in ESTIMATORS.values():
        with pytest.raises(PrivacyRefused, match=r"simulation_seed.*interactions=2.*subjects"):
            fitted(other())
    with pytest.raises(PrivacyRefused):
        fitted(asked)
    asked.predict(Q[:1])  # it is as it was


@counts
@every_estimator
def test_simulations_and_public_records_are_not_counted(made):
    for _ in range(2):
        fitted(made(simulation_seed=0)).predict(Q[:2])
        public = fitted(made(interactions="public"))
        public.predict(Q[:2])
        assert not public.guarantee().holds
        assert "declared public" in str(public.guarantee())
    fitted(made())


@counts
def test_an_overlap_beyond_chance_is_refused():
    """Fails if a fold, a bootstrap, another precision or another order of classes hides it."""
    first = fitted(ind_knn(), X[:200], Y[:200])
    first.predict(Q[:1])
    for rows in (slice(180, 300), np.r_[200:300, 0:40, 0:5], slice(0, 25)):
        with pytest.raises(PrivacyRefused):
            fitted(ind_knn(), X[rows], Y[rows])
    turned = IndKNNClassifier([2, 1, 0], n_records=300, noise_multiplier=3.0)
    with pytest.raises(PrivacyRefused):
        turned.fit(X[:30].astype(np.float32), Y[:30], public=R.astype(np.float32))
    fitted(ind_knn(), X[200:], Y[200:])


@counts
@every_estimator
def test_different_people_with_equal_rows_are_admitted(made):
    """Two hospitals know age, weight and height: rows coincide, and their directions more often."""
    rng = np.random.default_rng(0)
    means, deviations = np.array([50, 75, 170]), [15, 10, 8]
    hospitals = rng.normal(means, deviations, size=(2, 300, 3)).round()
    hospitals[:, :10] = means  # as filled in where nothing is known
    public = rng.normal(means, deviations, size=(80, 3))
    held = [fitted(made(), rows, Y, public=public) for rows in hospitals]
    for rows in hospitals:
        with pytest.raises(PrivacyRefused, match="If these are different people, pass 'subjects'"):
            fitted(made(), rows[::-1], Y, public=public)
    assert len(held) == 2


@counts
@every_estimator
@pytest.mark.parametrize(
    "again",
    [(X, (Y + 1) % 3), (X.astype(np.float32), Y), (X[::-1], Y), (X[:150], Y[:150])],
    ids=["labels", "precision", "order", "half"],
)
def test_without_ids_the_features_alone_are_compared(made, again):
    """Five fits at epsilon 1 each once passed, with other labels or class names."""
    held = fitted(made())
    if not isinstance(held, NoisySGDClassifier):
        held.predict(Q[:1])
    with pytest.raises(PrivacyRefused, match="earlier interaction"):
        fitted(made(), *again)
    for words in ("with other features", "another process or store", "under other ids"):
        assert words in str(held.guarantee())


@counts
def test_what_decision_0045_lists_is_not_noticed():
    """If one of these is refused, the page has to be corrected."""
    few = np.r_[X[:19], X[:100] + 1]
    held = [fitted(ind_knn(), rows, Y[: len(rows)]) for rows in (X, np.float32(3) * X, few)]
    assert len(held) == 3


@pytest.mark.parametrize("public", [X[::3], np.r_[R[:60], X[:7]]])
def test_a_sample_of_the_records_is_no_public_reference(public):
    """Whoever copies rows out of the records: they would show without noise."""
    for made in (ind_knn, ESTIMATORS["Private-kNN"], ESTIMATORS["NoisySGD"]):
        with pytest.raises(InvalidInput, match="must not be a part of the private"):
            made().fit(X, Y, None, public.copy())


def test_rows_that_coincide_by_nature_are_no_copies():
    rng = np.random.default_rng(0)
    rows, public = (rng.integers(0, 3, (size, 4)).astype(float) for size in (300, 80))
    ind_knn().fit(rows, Y, None, public)
    ind_knn().fit(X, Y, None, np.r_[R, X[:5]])


@counts
def test_subjects_decide_where_both_fits_have_them():
    """Fails if other features of one person pass, or equal rows of two people are refused."""
    fitted(ind_knn(), subjects=IDS).predict(Q[:1])
    with pytest.raises(PrivacyRefused):
        fitted(ind_knn(), X + 1, Y, subjects=[str(one) for one in IDS])
    fitted(ind_knn(), subjects=IDS + 1000)
    with pytest.raises(PrivacyRefused, match="subjects"):
        fitted(ind_knn())


@counts
@every_estimator
def test_what_released_nothing_is_forgotten(made):
    """Fails if a fit that was refused, or deleted before it answered, is counted."""
    with pytest.raises(InvalidInput):
        fitted(made(), X, Y[:5])
    held = fitted(made())
    if isinstance(held, NoisySGDClassifier):
        return
    fitted(held)
    with pytest.raises(PrivacyRefused):
        fitted(made())
    held.itself = held
    del held
    fitted(made()).predict(Q[:1])
    gc.collect()
    with pytest.raises(PrivacyRefused):
        fitted(made())


@counts
def test_a_fit_that_fails_late_leaves_the_classifier_as_it_was(monkeypatch):
    held = fitted(ind_knn())
    monkeypatch.setattr(IndKNNClassifier, "_set_fitted_state", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        fitted(held)
    monkeypatch.undo()
    held.predict(Q[:1])
    with pytest.raises(PrivacyRefused):
        fitted(ind_knn())


@counts
def test_refused_fits_tell_one_noisy_size(monkeypatch):
    """Fails if every refused fit draws a size anew: their mean is the size."""
    from vicinal.planning.engine_factory import EnginePlanner

    sizes = []
    radius = EnginePlanner.create_radius

    def refused(facts):
        sizes.append(facts.plan.size)
        raise InvalidInput("late")

    monkeypatch.setattr(EnginePlanner, "create_radius", refused)
    for _ in range(5):
        with pytest.raises(InvalidInput):
            fitted(ind_knn(n_records=None))
    assert len(set(sizes)) == 1
    with pytest.raises(PrivacyRefused):
        fitted(ind_knn(n_records=None), X[1:], Y[1:])
    with pytest.raises(PrivacyRefused):
        fitted(ind_knn())  # which would not pay for the size
    monkeypatch.setattr(EnginePlanner, "create_radius", radius)
    found = fitted(ind_knn(n_records=None))
    assert found.n_records_ == sizes[0]
    assert (found._shard.ledger.remaining < UNITS).all()


@counts
def test_records_that_are_added_are_claimed():
    """Fails if records are compared without those added before: few at a time pass as chance."""
    fitted(ind_knn(), X[:100], Y[:100]).predict(Q[:1])
    other = fitted(ind_knn(), X[200:], Y[200:])
    with pytest.raises(PrivacyRefused):
        other.add(X[50:80], Y[50:80])
    other.add(X[50:60], Y[50:60])
    with pytest.raises(PrivacyRefused):
        other.add(X[60:70], Y[60:70])
    other.add(X[100:130], Y[100:130])
    other.predict(Q[:1])
    with pytest.raises(PrivacyRefused):
        fitted(ind_knn(), X[100:130], Y[100:130])


@counts
def test_records_that_are_added_have_equal_rows_by_chance():
    """Fails if equal rows of several additions are counted once: a row then looks unique."""
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 31, (size, 2)).astype(float) for size in (2000, 960))
    held = fitted(ind_knn(), first[:100], Y[:100], public=R[:, :2])
    for start in range(100, 2000, 100):
        held.add(first[start : start + 100], Y[:100])
    fitted(ind_knn(), second, np.resize(Y, 960), public=R[:, :2])


@counts
def test_rounds_of_a_labelling_are_one_interaction():
    """Fails if the same features of two rounds count as two records with equal rows."""
    plan = default_plan(rounds=2, pool=20)
    labeller = PrivateKNNLabeller(lambda _: ESTIMATORS["Private-kNN"](), plan, Y)
    for part in plan.rounds:
        labeller.begin_round(X, R, part)
        labeller.label(np.resize(Q, (part.queries, Q.shape[1])))
    for made in ESTIMATORS.values():
        with pytest.raises(PrivacyRefused, match="earlier interaction"):
            fitted(made())


# ------------------------------------------------------------ declared compositions


@counts
@every_estimator
def test_declared_interactions_share_the_guarantee(made):
    several = [fitted(made(interactions=2)) for _ in range(2)]
    for each in several:
        each.predict(Q[:1])
        assert "at most 2 interactions" in str(each.guarantee())
    with pytest.raises(PrivacyRefused, match="All 2"):
        fitted(made(interactions=2))
    for number in (1, 3):
        with pytest.raises(PrivacyRefused, match="same declaration"):
            fitted(made(interactions=number))


def test_parts_of_a_budget_add_up_to_no_more():
    for given in ({}, {"accounting": "rdp"}, {"release": "label"}):
        whole, part = fitted(ind_knn(**given)), fitted(ind_knn(interactions=7, **given))
        assert 7 * part.budget_ <= whole.budget_
        assert 7 * part.budget_ == pytest.approx(whole.budget_)
        assert part.guarantee().epsilon == whole.guarantee().epsilon
    assert 7 * part._plan.label_charges.budget <= whole._plan.label_charges.budget


def test_planned_interactions_are_priced_together():
    for name in ("Private-kNN", "PATE"):
        made = ESTIMATORS[name]
        five = made(interactions=5).guarantee().epsilon
        assert five > made().guarantee().epsilon
        assert five == made().set_params(n_queries=45).guarantee().epsilon
    one, five = (NoisySGDClassifier(range(3), interactions=number) for number in (1, 5))
    assert five._get_plan().noise_multiplier > one._get_plan().noise_multiplier
    assert five.guarantee().epsilon <= 1.0


def test_other_plans_do_not_share():
    plans = [fitted(ind_knn(interactions=2, epsilon=epsilon))._plan for epsilon in (4.0, 3.0)]
    assert plans[0].plan_identity != plans[1].plan_identity


# ------------------------------------------------------------ model selection


class Declared(IndKNNClassifier):
    """Passes the public points along, as a search over parameters does not."""

    def fit(self, X, y):
        return super().fit(X, y, public=R)


def selected(**given):
    plan = {"n_queries": 600, "n_records": 200, "noise_multiplier": 1.5}
    return Declared(range(3), 4.0, **{**plan, **given})


@counts
@pytest.mark.filterwarnings("ignore")  # scikit-learn warns of failed fits
def test_a_search_with_real_noise_is_refused():
    """Fails if ten fits on the same people pass for one interaction."""
    search = GridSearchCV(selected(), {"noise_multiplier": [1.5, 2.0]}, cv=5)
    with pytest.raises(ValueError, match=r"All the 10 fits failed(.|\n)*fit several times"):
        search.fit(X, Y)
    selected().fit(X, Y)  # no fit was counted


@counts
@pytest.mark.parametrize("given", [{"simulation_seed": 0}, {"interactions": "public"}])
def test_a_search_in_a_simulation_or_on_public_records_works(given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = GridSearchCV(selected(**given), {"noise_multiplier": [1.5, 2.0]}, cv=3).fit(X, Y)
        assert cross_val_score(clone(search.estimator), X, Y, cv=3).min() > 0.8
    assert search.best_score_ > 0.8


# ------------------------------------------------------------ digests


@counts
def test_memory_is_eight_bytes_a_record():
    fitted(ind_knn()).predict(Q[:1])
    (claim,) = REGISTRY._claims
    assert claim.records.rows.nbytes == 8 * len(X)
    more = RecordDigests.from_records(X[:5] + 1, None)
    assert len(claim.records.merge(more, same_records=False).rows) == len(X) + 5
