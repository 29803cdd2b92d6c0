"""Individually charged gradients, against a slow transcription, and their exact charges."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from made_up import NoNoise
from mechanism_tools import make_accountant
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.mechanisms import DeltaSlackAccountant, NoiseSource, linear_model
from vicinal.mechanisms.gradients import SubjectRows, sum_gradient
from vicinal.mechanisms.linear_model import IndividualGradient, _round_weights
from vicinal.neighbours.kernels import FLOAT32, quantise_directions

pytestmark = pytest.mark.quick

BUDGET = 0.05
CLASSES = 3
FEATURES = 4
UNIT_VECTOR = 1 << 30  # grid steps of a coordinate of 1 in a target vector
UNIT = FLOAT32.compute_unit_norm(FEATURES)

SLOTS = np.array([0, 1, 1, 2, 3, 3, 3, 4], dtype=np.int32)
RNG = np.random.default_rng(0)
ROWS = quantise_directions(RNG.normal(size=(len(SLOTS), FEATURES)))
LABELS = RNG.integers(0, CLASSES, len(SLOTS)).astype(np.int32)
WEIGHTS = np.random.default_rng(5).normal(size=(FEATURES, CLASSES))

RESERVE = UNITS - math.floor(0.7 * UNITS)
"""What :func:`make_gradient` leaves of a full budget."""


def make_gradient_of(
    rows, targets, slots, *classes_unit_clip_noise, share=1.0, budget=BUDGET, noise=None, slack=None
):
    """Return the mechanism of these records, without limit of slack and without noise."""
    slots = np.asarray(slots, dtype=np.int32)
    records = SubjectRows(rows, targets, slots, int(slots.max()) + 1)
    slack = slack or make_accountant(needs_slack=False)
    return IndividualGradient(
        records, *classes_unit_clip_noise, share, budget, noise or NoNoise(), slack
    )


def make_gradient(subjects=range(5), *, clip=0.7, share=0.7, sigma=20.0, slack=None):
    """Return the mechanism of some of the five subjects above, each of which keeps its slot."""
    chosen = np.isin(SLOTS, subjects)
    records = SubjectRows(ROWS[chosen], LABELS[chosen], SLOTS[chosen], 5)
    slack = slack or make_accountant()
    return IndividualGradient(records, CLASSES, UNIT, clip, sigma, share, BUDGET, NoNoise(), slack)


def make_budgets(units=UNITS, n_subjects=5):
    return np.full(n_subjects, units, dtype=np.int64)


def compute_square_of(sums):
    """Return the exact squared norm of an array of integers."""
    return sum(int(v) ** 2 for v in sums.ravel())


def compute_literal_gradient(subject, clip):
    """The clipped gradient of one subject in the features' units, one record after the other."""
    weights, step = _round_weights(WEIGHTS)
    total = [[0.0] * CLASSES for _ in range(FEATURES)]
    for row, label, slot in zip(ROWS.tolist(), LABELS, SLOTS, strict=True):
        if slot != subject:
            continue
        scores = [
            sum(int(row[j]) * int(weights[j, c]) for j in range(FEATURES)) * step / UNIT
            for c in range(CLASSES)
        ]
        grown = [math.exp(s - max(scores)) for s in scores]
        for j in range(FEATURES):
            for c in range(CLASSES):
                e = grown[c] / sum(grown) - (c == label)
                total[j][c] += row[j] / UNIT * e
    norm = math.sqrt(sum(v * v for line in total for v in line))
    return np.array(total) * min(1.0, clip / norm)


@pytest.mark.parametrize("clip", [0.2, 0.7, 5.0])
def test_sums_are_those_of_a_slow_transcription(clip):
    mechanism = make_gradient(clip=clip)
    sums, _ = mechanism.prepare_release(20.0).contribute_and_charge(WEIGHTS, make_budgets())
    expected = sum(compute_literal_gradient(subject, clip) for subject in range(5))
    assert np.allclose(sums / mechanism.steps_per_clip * clip, expected, atol=1e-4 * clip)


def compute_exact_units(contribution, scale):
    square = compute_square_of(contribution)
    return UNITS * Fraction(square) / (2 * Fraction(scale) ** 2 * Fraction(BUDGET))


def test_every_subject_pays_for_exactly_what_it_added_and_touches_nobody_else():
    release = make_gradient().prepare_release(20.0)
    together = make_budgets()
    sums, spent = release.contribute_and_charge(WEIGHTS, together)
    parts = []
    for subject in range(5):
        alone = make_budgets()
        own_release = make_gradient([subject]).prepare_release(20.0)
        part, own = own_release.contribute_and_charge(WEIGHTS, alone)
        assert own == UNITS - alone[subject] == UNITS - together[subject]
        exact = compute_exact_units(part, release.scale)
        assert exact <= own <= exact * (1 + Fraction(1, 2**40)) + 1
        parts.append(part)
    assert (sum(parts) == sums).all()
    assert spent == int((UNITS - together).sum())


@pytest.mark.parametrize("clip", [100.00001610867727, 0.3])
@pytest.mark.parametrize("left", [UNITS, UNITS // 10**6])
@pytest.mark.parametrize("vectors", [False, True])
def test_the_order_of_a_subjects_records_changes_nothing(clip, left, vectors):
    """Other subjects' erasures move records: a contribution may not follow from their places."""
    rng = np.random.default_rng(1)
    rows = rng.integers(-4000, 4000, (3, 2)).astype(np.float32)
    targets = rng.integers(0, 3, 3).astype(np.int32)
    weights = rng.normal(size=(2, 3))
    if vectors:
        targets = rng.integers(-UNIT_VECTOR, UNIT_VECTOR, (3, 3)).astype(np.int32)
    found = set()
    for order in permutations(range(3)):
        some = list(order)
        mechanism = make_gradient_of(rows[some], targets[some], [0] * 3, 3, 4000.0, clip, 20.0)
        remaining = np.array([left])
        sums, spent = mechanism.prepare_release(20.0).contribute_and_charge(weights, remaining)
        assert spent == left - remaining[0] > 0
        found.add((sums.tobytes(), spent))
    assert len(found) == 1


@pytest.mark.parametrize("left", [-5, 0, 1000, 10**9, UNITS // 10**6])
def test_training_takes_no_more_than_its_share(left):
    remaining = make_budgets(RESERVE + left)
    sums, spent = make_gradient().prepare_release(0.5).contribute_and_charge(WEIGHTS, remaining)
    assert (remaining >= RESERVE + min(left, 0)).all()
    assert left >= 0 or (not sums.any() and spent == 0)


@pytest.mark.parametrize(("subject", "entries"), [(0, CLASSES), (1, FEATURES * CLASSES)])
def test_whoever_can_pay_for_a_step_in_every_entry_takes_part(subject, entries):
    """And who cannot pay for the shortest gradient that there is adds nothing, and pays nothing.

    That is the row times one step for a subject of one record, and one entry for the others.
    """
    mechanism = make_gradient([subject])
    release = mechanism.prepare_release(0.5)
    shortest = math.ceil((mechanism.squared_norms[0] if subject == 0 else 1) * release.rate)
    for left, some in ((shortest - 1, False), (math.ceil(1.01 * entries * shortest) + 1, True)):
        remaining = make_budgets(RESERVE + left)
        sums, spent = release.contribute_and_charge(WEIGHTS, remaining)
        assert sums.any() == (spent > 0) == some
        assert (remaining >= RESERVE).all()


def make_extremes(seed):
    """Return rows, targets, weights, a clipping bound, and the units that each subject has left."""
    rng = np.random.default_rng(seed)
    n, d, c = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(2, 5))
    rows = rng.integers(-1, 2, (n, d)) * rng.choice([1, 37, 4095])
    rows[:, 0] = rng.choice([-1, 1, 4730])
    weights = rng.choice([0, 1e-30, -1, 3.7, 1e4, -1e150, 1e300], (d, c))
    left = rng.choice([0, 1, 10**4, 10**9, UNITS // 10**5, UNITS], n)
    targets = rng.integers(0, c, n).astype(np.int32)
    if seed % 2:  # vectors, of entries that reach 1
        targets = rng.choice([-UNIT_VECTOR, -3, 0, 10**6, UNIT_VECTOR], (n, c)).astype(np.int32)
    return rows.astype(np.float32), targets, weights, rng.choice([0.01, 0.7, 50]), left


def charge_extremes(subjects, extremes, noise):
    """Return the release, sums and charges of some subjects with one record each."""
    rows, targets, weights, clip, left = extremes
    classes = weights.shape[1]
    mechanism = make_gradient_of(
        rows[subjects], targets[subjects], range(len(subjects)), classes, UNIT, clip, noise
    )
    release, remaining = mechanism.prepare_release(noise), left[subjects].astype(np.int64)
    sums, spent = release.contribute_and_charge(weights, remaining)
    assert spent == (left[subjects] - remaining).sum()
    return release, sums, spent


def check_every_subject(noise, seeds):
    """Compare what each adds and pays, in exact numbers, with the bounds, and with all together."""
    for extremes in map(make_extremes, seeds):
        left = extremes[-1]
        total = 0
        for subject in range(len(left)):
            release, part, spent = charge_extremes([subject], extremes, noise)
            longest = min(release.mechanism.steps_per_clip, release.scale)
            assert compute_square_of(part) <= longest**2
            assert compute_exact_units(part, release.scale) <= spent <= left[subject]
            total = total + part
        assert (charge_extremes(list(range(len(left))), extremes, noise)[1] == total).all()


@pytest.mark.parametrize("noise", [0.01, 1.0, 40.0, 1e7])
def test_no_rounding_makes_anybody_longer_or_cheaper(noise):
    check_every_subject(noise, range(40))


def test_derivatives_that_are_rounded_up_are_caught(monkeypatch):
    honest = linear_model.charge_records

    def broken(scores, derivatives, *rest):
        spent = honest(scores, derivatives, *rest)
        derivatives += np.sign(derivatives)
        return spent

    monkeypatch.setattr(linear_model, "charge_records", broken)
    with pytest.raises(AssertionError):
        check_every_subject(1.0, range(40))


class GivenNoise(NoiseSource):
    """Noise that is the same on every grid, but for its rounding."""

    def __init__(self):
        self.drawn = np.random.default_rng(8).normal(size=(30, FEATURES, CLASSES))
        self.left = list(self.drawn)

    def discrete_gaussian(self, scale, size):
        return np.rint(self.left.pop(0) * scale).astype(np.int64).reshape(size)


@pytest.mark.parametrize("vectors", [False, True])
def test_a_training_follows_gradients_in_floats_under_the_same_noise(vectors):
    """Rounding to integers changes the weights by at most a thousandth of the largest."""
    rng, n, rate, noise = np.random.default_rng(7), 200, 20.0, GivenNoise()
    labels = rng.integers(0, CLASSES, n).astype(np.int32)
    rows = quantise_directions(rng.normal(size=(n, FEATURES)) + 2 * np.eye(FEATURES)[labels])
    sides = np.eye(CLASSES)[labels] * 0.75
    targets = (sides * UNIT_VECTOR).astype(np.int32) if vectors else labels
    mechanism = make_gradient_of(
        rows, targets, range(n), CLASSES, UNIT, 0.5, 8.0, budget=10.0, noise=noise
    )
    release, remaining = mechanism.prepare_release(8.0), make_budgets(n_subjects=n)
    assert release.noise >= 8.0
    weights, floats = np.zeros((2, FEATURES, CLASSES))
    for drawn in noise.drawn:
        sums, _ = release.contribute_and_charge(weights, remaining)
        weights = weights - rate * release.publish(sums) * (mechanism.clip / n)
        scores = rows / UNIT @ floats
        grown = np.exp(scores)
        residuals = grown / grown.sum(axis=1, keepdims=True) - np.eye(CLASSES)[labels]
        residuals = np.clip(scores - sides, -1, 1) if vectors else residuals
        lengths = np.linalg.norm(residuals, axis=1) * np.linalg.norm(rows, axis=1) / UNIT
        residuals *= np.minimum(1, mechanism.clip / lengths)[:, None]
        floats = floats - rate / n * (
            rows.T @ residuals / UNIT + drawn * release.noise * mechanism.clip
        )
    assert np.abs(weights).max() > 0.5
    np.testing.assert_allclose(weights, floats, atol=1e-3 * np.abs(floats).max())


def test_exponentials_are_as_good_as_stated():
    scores = -np.random.default_rng(0).uniform(0, 60, 4000)
    results, power = np.empty(len(scores)), np.empty(len(scores), dtype=np.int64)
    linear_model._compute_exponentials(scores, np.zeros(len(scores)), 1.0, power, results)
    np.testing.assert_allclose(results, np.exp(scores), rtol=3e-10)


def test_as_many_as_are_summed_at_once_may_all_pull_one_way():
    """Fails if the grid is finer than sums of 64 contributions in int32 allow."""
    rows = np.tile(np.float32([UNIT, 0, 0, 0]), (64, 1))
    mechanism = make_gradient_of(
        rows, np.zeros(64, np.int32), range(64), 2, UNIT, 0.1, 1.0, budget=1e9
    )
    release, weights = mechanism.prepare_release(1.0), np.zeros((FEATURES, 2))
    sums, _ = release.contribute_and_charge(weights, make_budgets(n_subjects=64))
    longest = mechanism.steps_per_clip / math.sqrt(2)
    np.testing.assert_allclose(sums[0], [-64 * longest, 64 * longest], rtol=1e-3)


def test_huge_noise_gets_a_coarser_grid():
    mechanism = make_gradient(sigma=1e8)
    assert mechanism.steps_per_clip < make_gradient().steps_per_clip
    assert mechanism.prepare_release(1e8).noise >= 1e8


def test_steps_and_trainings_that_delta_does_not_pay_for_are_refused_before_they_begin():
    slack, noise = make_accountant(), 1e-3
    mechanism = make_gradient(slack=slack)
    mechanism.prepare_release(noise)
    slack.resume(1e-7 - 10 * slack.spent)
    mechanism.check_slack(noise, 9)
    with pytest.raises(PrivacyRefused, match="grid"):
        mechanism.check_slack(noise, 11)
    full = DeltaSlackAccountant(1e-5, needs_slack=True, spent=1e-7)
    with pytest.raises(PrivacyRefused):
        make_gradient(slack=full).prepare_release(noise)


@pytest.mark.parametrize("bad", [{"clip": 0.0}, {"share": 0.0}, {"sigma": float("nan")}])
def test_bad_numbers_are_refused(bad):
    with pytest.raises(InvalidInput):
        make_gradient(**bad)


@pytest.mark.parametrize("count", [1, 3])
def test_a_charge_too_large_to_be_a_number_is_still_paid(count):
    """A charge is given as 2^62 beyond that, so one shortening by what is left is not enough."""
    some = ROWS[:count], LABELS[:count], [0] * count
    mechanism = make_gradient_of(*some, CLASSES, UNIT, 0.01, 0.2, share=0.5, budget=1e-7)
    remaining = np.array([UNITS])
    release = mechanism.prepare_release(0.2)
    sums, spent = release.contribute_and_charge(WEIGHTS, remaining)
    assert remaining[0] >= mechanism.reserve
    assert UNITS - remaining[0] == spent
    assert math.ceil(compute_square_of(sums) * release.rate) <= spent


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("noise", [0.13, 0.5, 20.0])
def test_nobody_is_longer_than_the_scale_or_the_clipping_bound(count, noise):
    """The grid's slack is proven up to the scale; with this budget no other bound is active."""
    some = ROWS[:count], LABELS[:count], [0] * count
    mechanism = make_gradient_of(*some, CLASSES, UNIT, 1e-3, noise, budget=1e6)
    release = mechanism.prepare_release(noise)
    sums, _ = release.contribute_and_charge(WEIGHTS, np.array([UNITS]))
    longest = min(release.scale, mechanism.steps_per_clip)
    assert (longest == release.scale) == (noise < 1)
    assert 0.99 * longest**2 < compute_square_of(sums) <= longest**2


def test_derivatives_of_a_short_row_are_cut_to_what_int16_holds():
    """Otherwise they would wrap around and be charged for their previous values."""
    rows = np.array([[1, 0]], dtype=np.float32)
    mechanism = make_gradient_of(
        rows, np.array([1], np.int32), [0], 2, 1.0, 1e-3, 20.0, budget=10.0
    )
    release = mechanism.prepare_release(20.0)
    sums, spent = release.contribute_and_charge(np.zeros((2, 2)), np.array([UNITS]))
    assert sums[0, 0] > 0 > sums[0, 1]
    assert 0.999 * 32767**2 < compute_square_of(sums) <= 32767**2
    assert spent == math.ceil(compute_square_of(sums) * release.rate)


def test_a_sum_of_squares_that_is_rounded_down_makes_nobody_longer():
    """The bound is slightly below the norm of an integer vector that a rounded norm admits."""
    width, entry = 8000, 300
    bound = math.sqrt(width) * entry * (1 - 1e-13)
    for value in np.random.default_rng(0).random(300):
        residuals, costs = np.full((width, 1), value), np.zeros(1)
        square, scratch = np.ones(1, np.int64), np.zeros(1)
        linear_model._clip_to_integers(residuals, square, 1e9, bound, scratch, costs)
        assert (residuals == entry - 1).all()


@pytest.mark.parametrize("largest", [1.0, 0.1])
def test_the_order_of_thousands_of_records_changes_no_bit(largest):
    """Derivatives of many records are rounded to coarser steps, so that their sums stay exact."""
    rng = np.random.default_rng(2)
    rows = rng.integers(4000, 8000, (3000, 3)).astype(np.int16)
    residuals = rng.uniform(0.9 * largest, largest, (3000, 3))
    order = rng.permutation(3000)
    in_order = sum_gradient(residuals.copy(), rows)
    np.testing.assert_array_equal(sum_gradient(residuals[order], rows[order]), in_order)


@pytest.mark.parametrize("several", [False, True])
def test_scores_far_off_a_vector_count_as_one_that_is_off_by_one(several):
    """Sums over a subject's records are exact for derivatives up to 1, as those of softmax are."""
    rows, slots = np.array([[900, 7]] * (1 + several), np.float32), [0] * (1 + several)

    def charge(target, weight):
        targets = np.full((len(rows), 1), target, np.int32)
        mechanism = make_gradient_of(rows, targets, slots, 1, 1000.0, 5.0, 20.0)
        release = mechanism.prepare_release(20.0)
        return release.contribute_and_charge(np.array([[weight], [0.0]]), np.array([UNITS]))

    near, far = charge(-UNIT_VECTOR, 0.0), charge(UNIT_VECTOR, 1e6)
    assert (near[0] == far[0]).all()
    assert near[0].any()
    assert near[1] == far[1]
