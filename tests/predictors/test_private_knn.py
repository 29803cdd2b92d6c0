"""Private-kNN: sampled votes, screening, charges and refusals."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from made_up import corners
from vicinal import mechanisms, testing
from vicinal.accounting import account
from vicinal.errors import PrivacyRefused
from vicinal.mechanisms.noise_sources import SimulatedBernoulli, SystemBernoulli, create_sampler
from vicinal.mechanisms.planned_releases import FINE_SCALE, NoisyMax, NoisyThreshold, ReleaseCounter
from vicinal.mechanisms.private_knn import ClippedVotes, OneHotVotes, SampledNeighbourSearch
from vicinal.neighbours import RBF
from vicinal.neighbours.kernels import FLOAT32, Precision
from vicinal.neighbours.poisson_knn import NO_RECORD, PoissonKNN
from vicinal.predictors.private_knn import PrivateKNNClassifier
from vicinal.progress import show_progress

# ---------------------------------------------------------------- who votes


def people(n, seed=0, d=3, per_subject=1):
    """Return integer features with many ties, slots, and the number of subjects."""
    rng = np.random.default_rng(seed)
    integers = rng.integers(-3, 4, size=(n, d)).astype(np.float32)
    slots = rng.integers(0, max(1, n // per_subject), n) if per_subject > 1 else np.arange(n)
    return integers, slots.astype(np.int32), int(slots.max()) + 1 if n else 0


def by_definition(integers, slots, query, coins_of, k):
    """Return the k nearest subjects' rows of the sample, from the definition."""
    distances = ((integers - query) ** 2).sum(axis=1)
    chosen, taken = [], set()
    for row in sorted(range(len(integers)), key=lambda row: (distances[row], row)):
        if coins_of[slots[row]] and slots[row] not in taken and len(chosen) < k:
            taken.add(slots[row])
            chosen.append(row)
    return chosen


@pytest.mark.parametrize("per_subject", [1, 3])
@pytest.mark.parametrize("k", [1, 4, 200])
def test_the_walk_finds_the_nearest_of_the_sample(per_subject, k):
    rng = np.random.default_rng(k)
    integers, slots, subjects = people(120, per_subject=per_subject)
    queries, _, _ = people(20, seed=1)
    walk = PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, k, 0.5)
    near = walk.list_all_records(queries)
    for _ in range(5):
        heads = rng.random(subjects) < 0.5
        chosen = walk.select_nearest(near, np.flatnonzero(heads[slots[near.rows]]))
        for j, query in enumerate(queries):
            expected = by_definition(integers, slots, query, heads, k)
            assert sorted(chosen[j][chosen[j] != NO_RECORD]) == sorted(expected)


@pytest.mark.parametrize("precision", [FLOAT32, Precision(120, 127)])
@pytest.mark.parametrize("k", [1, 4, 200])
def test_a_sample_drawn_first_has_the_nearest_of_the_definition(precision, k):
    kernel = RBF(1.0, 1.0, precision)
    rng = np.random.default_rng(k)
    integers, queries = (kernel.encode(rng.normal(size=(m, 5)) / 4) for m in (300, 20))
    slots = np.arange(300, dtype=np.int32)
    walk = PoissonKNN(kernel, integers, slots, 300, k, 0.02)
    assert walk.sample_first
    sample = np.flatnonzero(rng.random(20 * 300) < 0.02)
    chosen = walk.find_nearest_sampled(queries, sample)
    wide = integers.astype(np.float64)
    for j, query in enumerate(queries.astype(np.float64)):
        heads = np.isin(np.arange(300) + 300 * j, sample)
        expected = by_definition(wide, slots, query, heads, k)
        assert sorted(chosen[j][chosen[j] != NO_RECORD]) == sorted(expected)


def test_either_way_chooses_the_same_of_the_same_sample():
    """Fails if drawing first and looking inside a radius first are two mechanisms."""
    integers, slots, subjects = people(200)
    queries, _, _ = people(10, seed=1)
    found = []
    for first in (True, False):
        walk = PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, 3, 0.05)
        walk.sample_first = first
        near = None if first else walk.list_all_records(queries)
        coins = SimulatedBernoulli(3)
        nearest = SampledNeighbourSearch(walk, 0.05, coins).draw_nearest(queries, near)
        found.append(np.sort(nearest, axis=1))
    np.testing.assert_array_equal(*found)


@pytest.mark.entropy
@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_queries_side_by_side_have_neighbours_of_their_own(count):
    """Fails if threads mix up or share the candidates of their queries, or leave some out.

    Whatever is drawn: everybody takes part.
    """
    integers, slots, subjects = people(120)
    queries, _, _ = people(20, seed=1)
    sample = SampledNeighbourSearch(
        PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, 7, 1.0), 1.0, SystemBernoulli()
    )
    with testing.use_threads(count):
        chosen = sample.draw_nearest(queries, sample.find_candidates(queries))
    for rows, query in zip(chosen, queries, strict=True):
        assert sorted(rows) == sorted(by_definition(integers, slots, query, [True] * subjects, 7))


@pytest.mark.entropy
def test_queries_side_by_side_have_coins_of_their_own():
    """Fails if threads share coins: the same query twice must meet two independent samples.

    By chance with probability 2e-12, that of seven standard deviations.
    """
    integers, slots, subjects = people(64)
    walk = PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, 64, 0.5)
    sample = SampledNeighbourSearch(walk, 0.5, SystemBernoulli())
    same = np.repeat(integers[:1], 2, axis=0)
    alike = 0
    for _ in range(200):
        with testing.use_threads(2):
            drawn = sample.draw_nearest(same, sample.find_candidates(same))
        left, right = (set(rows[rows != NO_RECORD]) for rows in drawn)
        alike += 64 - len(left ^ right)
    assert abs(alike - 6400) < 7 * np.sqrt(12800 / 4)


def test_a_subject_goes_by_one_coin():
    integers = np.arange(6, dtype=np.float32)[:, None]
    walk = PoissonKNN(RBF(1.0, 1.0), integers, np.zeros(6, np.int32), 1, 2, 0.5)
    near = walk.list_all_records(np.zeros((1, 1), np.float32))
    others = np.array([False, True, True, True, True, True])
    assert (walk.select_nearest(near, np.flatnonzero(others)) == NO_RECORD).all()
    nearest = walk.select_nearest(near, np.flatnonzero(~others))
    np.testing.assert_array_equal(nearest, [[0, NO_RECORD]])


class Recorded(SimulatedBernoulli):
    """Coins that can be read afterwards."""

    def __init__(self, seed):
        super().__init__(seed)
        self.calls = []

    def bernoulli(self, probability, size):
        self.calls.append(super().bernoulli(probability, size))
        return self.calls[-1]


@pytest.mark.parametrize("per_subject", [1, 3])
def test_a_short_walk_goes_on_with_the_same_coins(per_subject):
    """Fails if the fallback tosses again for candidates, or misses anybody else."""
    integers, slots, subjects = people(60, per_subject=per_subject)
    query = np.zeros((1, 3), np.float32)
    walk = PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, 5, 0.4)
    nearest = -((integers**2).sum(axis=1))
    narrow = walk._index.search(query, np.sort(nearest)[-6:-5].astype(np.int64))
    went_on = 0
    for seed in range(30):
        coins = Recorded(seed)
        chosen = SampledNeighbourSearch(walk, 0.4, coins).draw_nearest(query, narrow)[0]
        heads = np.zeros(subjects, dtype=bool)
        if len(coins.calls) > 1:
            went_on += 1
            heads = coins.calls[1].copy()
        known, first = np.unique(slots[narrow.rows], return_index=True)
        heads[known] = coins.calls[0][first]
        expected = by_definition(integers, slots, query[0], heads, 5)
        assert sorted(chosen[chosen != NO_RECORD]) == sorted(expected)
    assert went_on > 10


def test_candidates_are_all_inside_a_radius():
    rng = np.random.default_rng(0)
    integers = rng.integers(-50, 50, size=(5000, 4)).astype(np.float32)
    queries = integers[:50]
    walk = PoissonKNN(RBF(1.0, 1.0), integers, np.arange(5000, dtype=np.int32), 5000, 20, 0.2)
    near = walk.find_candidates(queries)
    counts = np.diff(near.starts)
    assert (counts >= 20 / 0.2).all()
    assert counts.max() < 1000
    for j, query in enumerate(queries):
        distances = ((integers - query) ** 2).sum(axis=1)
        inside = near.rows[near.starts[j] : near.starts[j + 1]]
        assert distances[inside].max() < np.delete(distances, inside).min()


def test_nobody_and_few_can_be_asked():
    for size in (0, 1, 3):
        integers, slots, subjects = people(size)
        walk = PoissonKNN(RBF(1.0, 1.0), integers, slots, subjects, 5, 1.0)
        sample = SampledNeighbourSearch(walk, 1.0, SystemBernoulli())
        queries = np.zeros((2, 3), np.float32)
        chosen = sample.draw_nearest(queries, sample.find_candidates(queries))
        assert ((chosen != NO_RECORD).sum(axis=1) == size).all()


def test_leaving_one_subject_out_moves_one_in_and_one_out():
    integers, slots, subjects = people(40, per_subject=2)
    queries, _, _ = people(15, seed=3)
    rng = np.random.default_rng(0)
    heads = rng.random(subjects) < 0.6
    for gone in range(subjects):
        kept = slots != gone
        voters = []
        for part in (np.ones(len(slots), dtype=bool), kept):
            walk = PoissonKNN(RBF(1.0, 1.0), integers[part], slots[part], subjects, 4, 0.6)
            near = walk.list_all_records(queries)
            rows = np.flatnonzero(part)
            chosen = walk.select_nearest(near, np.flatnonzero(heads[slots[part][near.rows]]))
            voters.append([{*rows[row[row != NO_RECORD]]} for row in chosen])
        for with_them, without in zip(*voters, strict=True):
            assert len(with_them - without) <= 1
            assert len(without - with_them) <= 1
            assert all(slots[row] == gone for row in with_them - without)


# ---------------------------------------------------------------- votes


def test_label_votes():
    ballots = OneHotVotes(np.array([0, 2, 2, 1], np.int32), 3)
    chosen = np.array([[0, 1, 2], [3, NO_RECORD, NO_RECORD]], np.int32)
    np.testing.assert_array_equal(ballots.count_votes(chosen, 8), [[8, 0, 16], [0, 8, 0]])


@pytest.mark.parametrize("tau", [0.3, 1, 2, 2.5, 10 / 3, 5, 7])
@pytest.mark.parametrize("steps", [1, 16, 1 << 20])
def test_clipped_votes_never_move_further_than_the_accounting_says(tau, steps):
    """Fails if one in and one out move the sums by more than 2 tau squared votes, anywhere."""
    label_vectors = np.array(list(product((False, True), repeat=5)))
    single_records = np.arange(len(label_vectors), dtype=np.int32)[:, None]
    votes = ClippedVotes(label_vectors, tau).count_votes(single_records, steps).tolist()
    bound = 2 * Fraction(tau) * steps**2
    worst = max(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
        for one, other in combinations_with_replacement(votes, 2)
    )
    assert worst <= bound
    if steps > 1 << 10 and tau in (1, 2):
        assert worst == bound  # two records with tau labels each, none in common


def test_votes_are_taken_from_the_quota_before_noise_is_drawn():
    class Untouchable:
        exact = True

    voting = NoisyMax(5.0, 10, ReleaseCounter(1, "answers"), Untouchable(), label_only=False)
    with pytest.raises(PrivacyRefused, match="1 are left; 2 more"):
        voting.publish(np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(AttributeError):
        voting.publish(np.zeros((1, 3), dtype=np.int64))
    assert voting.release_counter.remaining == 0


# ---------------------------------------------------------------- screening


def screening(threshold, sigma, *scale):
    """Return a screening of two queries."""
    quota = ReleaseCounter(2, "screenings")
    return NoisyThreshold(
        threshold, sigma, quota, mechanisms.create_noise_source(), SystemBernoulli(), *scale
    )


def passing(threshold, sigma, votes, scale):
    """Return the exact probability that so many votes pass, by the law of the noise."""
    reach = np.arange(-60 * scale, 60 * scale + 1)
    weights = np.exp(-(reach**2) / (2.0 * scale**2))
    weights /= weights.sum()
    whole, part = screening(threshold, sigma, scale).compute_noise_limit(votes)
    return float(weights[reach > whole].sum() + (1 - part) * weights[reach == whole].sum())


@settings(max_examples=300)
@given(
    threshold=st.floats(-20, 20),
    sigma=st.floats(0.3, 30),
    votes=st.integers(0, 20),
    scale=st.sampled_from([4, 5, 8, 50]),
)
def test_what_passes_has_the_stated_law(threshold, sigma, votes, scale):
    """Fails if the answer's law is further from Phi than the proof note says."""
    ideal = ndtr((votes - threshold) / sigma)
    assert abs(passing(threshold, sigma, votes, scale) - ideal) <= 1 / (6 * scale**2)


def test_the_bar_is_exact():
    """Fails if the bar is worked out in floating point: T = .1 and sigma = .3 are no fractions."""
    whole, part = screening(0.1, 0.3).compute_noise_limit(7)
    exact = (Fraction(0.1) - 7) / Fraction(0.3) * FINE_SCALE + Fraction(1, 2)
    assert abs(whole + Fraction(part) - exact) < Fraction(1, 2**50)


def test_a_threshold_out_of_reach():
    assert not screening(1e7, 1e-2).publish(np.array([0, 300])).any()
    assert screening(-1e7, 1e-2).publish(np.array([0, 300])).all()


def test_a_tie_is_decided_by_a_coin():
    class OnTheBar:
        exact = False

        def discrete_gaussian(self, scale, size):  # noqa: ARG002 (the interface of a source)
            return np.full(size, limit)

    quota, coins = ReleaseCounter(4000, "screenings"), SimulatedBernoulli(0)
    tied = NoisyThreshold(10.0, 3.0, quota, OnTheBar(), coins, scale=7)
    limit, part = tied.compute_noise_limit(8)
    assert 0.1 < part < 0.9
    assert tied.publish(np.full(4000, 8)).mean() == pytest.approx(1 - part, abs=0.05)
    assert quota.remaining == 0


# ---------------------------------------------------------------- the estimator


RECORDS = corners(0, 400, d=5)


def classifier(**more):
    """Return a classifier that is nearly always right, and simulated."""
    given = {
        "n_neighbors": 20, "sampling_rate": 0.5, "sigma_votes": 2.0, "n_queries": 40,
        "simulation_seed": 0,
    }  # fmt: skip
    return PrivateKNNClassifier(range(3), **{**given, **more})


def screened(**more):
    return classifier(sigma_screen=2.0, threshold=10.0, **more)


PLANS = [
    {
        "n_neighbors": 300, "sampling_rate": 0.15, "sigma_screen": 75, "threshold": 180,
        "sigma_votes": 25,
    },
    {
        "n_neighbors": 300, "sampling_rate": 0.25, "sigma_screen": 85.3, "threshold": 210.7,
        "sigma_votes": 20.1,
    },
    {"n_neighbors": 50, "sampling_rate": 0.1, "sigma_votes": 33.3},
    {"n_neighbors": 50, "sampling_rate": 0.1, "sigma_votes": 33.3, "release": "label"},
    {
        "n_neighbors": 800, "sampling_rate": 1.0, "sigma_screen": 100, "threshold": 400,
        "sigma_votes": 70,
    },
    {"n_neighbors": 70, "sampling_rate": 0.1, "sigma_votes": 100.0, "tau": 10},
]  # fmt: skip


def planned_by_hand(given, delta, count):
    """Return the plan of issue and design, written out."""
    given = dict(given)
    steps = []
    if "sigma_screen" in given:
        steps.append({
            "kind": "screening", "k": given["n_neighbors"], "classes": 10,
            "gamma": given["sampling_rate"],
            "threshold": given["threshold"], "sigma": given["sigma_screen"], "count": count,
        })  # fmt: skip
    last = {"kind": "noisy_max", "sigma": given["sigma_votes"], "gamma": given["sampling_rate"]}
    if "tau" in given:
        last |= {"kind": "multilabel", "tau": given["tau"]}
    if "release" in given:
        last |= {"release": "label", "classes": 10}
    return {"delta": delta, "releases": [*steps, {**last, "count": count}]}


@pytest.mark.parametrize("given", PLANS)
def test_the_guarantee_is_what_vicinal_account_says(given):
    """Fails if the estimator prices its plan by anything else, in the last digit."""
    estimator = PrivateKNNClassifier(range(10), **given, n_queries=700)
    for delta in (1e-5,) if "release" in given else (1e-5, 1e-7):  # a label's price takes seconds
        stated = estimator.guarantee(delta)
        price = account(planned_by_hand(given, delta, 700))
        assert (stated.epsilon, stated.delta) == (price["epsilon"], delta)
    assert estimator.guarantee().delta == 1e-5
    assert f"{stated.delta:g}" in str(stated)


def test_the_grid_is_added_to_delta_where_it_matters():
    """Fails if a delta as small as what whole steps of noise cost is claimed."""
    stated = PrivateKNNClassifier(range(10), **PLANS[2], n_queries=700).guarantee(1e-24)
    assert stated.delta > 1e-24
    assert stated.delta < 1e-18


def test_what_does_not_pass_is_marked():
    X, y = RECORDS
    Q, _ = corners(1, 40, d=5)
    never = {"sigma_screen": 1.0, "threshold": 1000.0}
    assert (classifier(**never).fit(X, y).predict(Q) == -1).all()
    named = classifier(**never)
    named.classes = ["a", "b", "c"]
    assert all(label is None for label in named.fit(X, np.array(["a", "b", "c"])[y]).predict(Q))
    votes = classifier(**never).fit(X, y).decision_function(Q)
    assert np.isnan(votes).all()
    assert votes.shape == (40, 3)
    some = classifier(sigma_screen=3.0, threshold=17.0).fit(X, y)
    answers = some.predict(Q)
    assert 0 < (answers == -1).sum() < 40
    assert some.n_answers_ == (answers != -1).sum()


def test_votes_and_labels_agree():
    X, y = RECORDS
    Q, truth = corners(1, 40, d=5)
    votes = screened().fit(X, y).decision_function(Q)
    labels = screened().fit(X, y).predict(Q)
    asked = labels != -1
    np.testing.assert_array_equal(np.isnan(votes).all(axis=1), ~asked)
    np.testing.assert_array_equal(votes[asked].argmax(axis=1), labels[asked])
    assert (labels[asked] == truth[asked]).mean() > 0.9
    np.testing.assert_array_equal(screened(release="label").fit(X, y).predict(Q), labels)


def test_many_blocks_are_one_batch(monkeypatch):
    """Fails if answers depend on how a batch is cut up, or if progress tells how it was cut."""
    X, y = RECORDS
    done = []
    monkeypatch.setattr("vicinal.mechanisms.private_knn._MAX_HITS", 700)
    monkeypatch.setattr("vicinal.mechanisms.private_knn.BLOCK", 16)
    with show_progress(lambda *_: done.append):
        answers = classifier().fit(X, y).predict(X[:40])
    assert len(answers) == 40
    assert done == [16, 16, 8]
    assert (answers == y[:40]).mean() > 0.9


def test_a_subject_has_one_vote():
    X = np.zeros((13, 2))
    y = np.array([1] * 10 + [0] * 3)
    ids = ["one"] * 10 + ["a", "b", "c"]
    one = PrivateKNNClassifier(range(2), 10, 1.0, sigma_votes=0.01, n_queries=2)
    votes = one.fit(X, y, ids).votes(np.zeros((2, 2)))
    np.testing.assert_allclose(votes, [[3, 1]] * 2, atol=0.2)


def test_attributes():
    """Fails if attributes are not told by half of the neighbours, or a clipped vote counts full."""
    X, y = RECORDS
    flags = np.stack([y == 0, y != 2, np.ones_like(y)], axis=1).astype(int)
    asking = classifier(tau=3, sigma_votes=0.5).fit(X, flags)
    assert (asking.predict(X[:30]) == flags[:30]).mean() > 0.95
    votes = classifier(tau=1.5, sigma_votes=0.01).fit(X, flags).decision_function(X[:30])
    few, many = y[:30] == 2, y[:30] == 0
    np.testing.assert_allclose(np.median(votes[few], axis=0), [0, 0, 20], atol=0.2)
    np.testing.assert_allclose(np.median(votes[many], axis=0), [10, 10, 10], atol=0.2)


def test_the_grid_comes_from_public_rows():
    X, y = RECORDS
    Q, _ = corners(1, 40, d=5)
    by_queries = classifier().fit(1e6 * X, y)
    by_queries.predict(Q)
    longest = np.linalg.norm(Q, axis=1).max()
    assert by_queries._release.kernel.bound == pytest.approx(1.25 * longest)
    by_reference = classifier().fit(X, y, public=7 * Q)
    assert by_reference._release.kernel.bound == pytest.approx(7 * longest)
    given = classifier(norm_bound=3.0).fit(X, y, public=Q)
    assert given._release.kernel.bound == 3.0
    assert given._release.kernel.precision.limit > 127
    wide = classifier().fit(np.tile(X, 13), y, public=np.tile(Q, 13))
    assert wide._release.kernel.precision.limit == 127
    zeros = classifier().fit(X, y)
    assert len(zeros.predict(np.zeros((2, 5)))) == 2


def test_coins_come_from_the_system_unless_simulated():
    assert create_sampler().exact
    assert not create_sampler(0).exact
    assert (SystemBernoulli().bernoulli(1.0, 50)).all()
