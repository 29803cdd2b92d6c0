"""Prediction sets and intervals: certified coverage, what they cost, and what is refused."""

import json
import math
import re
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special, stats
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import store_tools as tools
from command_line import invoked, printed, shown
from vicinal import Store
from vicinal.accounting.budget import UNITS
from vicinal.errors import InvalidInput, NoCoverage
from vicinal.mechanisms.tally import NoisyTally
from vicinal.store import Query
from vicinal.store import coverage as coverage_module
from vicinal.store import evaluation as evaluation_module
from vicinal.store.coverage import (
    ADAPTIVE_THRESHOLDS,
    LEVELS,
    TWO_CLASS_THRESHOLDS,
    CertifiedThresholds,
    ScoreHistogram,
    bound_binomial_excess,
    certify_coverage,
    compute_class_scores,
    compute_max_error,
    count_required_outcomes,
    find_drifted_levels,
)
from vicinal.store.evaluation import ReleasedNumbers
from vicinal.store.requests import name_coverage_columns
from vicinal.targets.kinds import declared_target

pytestmark = pytest.mark.quick

THRESHOLDS = np.array(ADAPTIVE_THRESHOLDS)
N_BINS = len(THRESHOLDS) + 1


def make_histogram(scores, noise, generator, max_error=0.025):
    """Return the noisy histogram of the scores of subjects with one row each."""
    bins = np.searchsorted(THRESHOLDS, scores)
    counts = np.bincount(bins, minlength=N_BINS) + generator.normal(0, noise, N_BINS)
    return ScoreHistogram(None, THRESHOLDS, counts, noise, max_error)


# ------------------------------------------------------------ the test of a threshold


@pytest.mark.parametrize(("n", "level"), [(30, 0.9), (300, 0.8), (2000, 0.95)])
def test_the_bound_is_above_the_binomial_tail_and_rises_with_the_number(n, level):
    excess = np.linspace(0.1, n * (1 - level), 40)
    bound = bound_binomial_excess(excess, n, level)
    exact = stats.binom.sf(np.ceil(n * level + excess - 1e-9) - 1, n, level)
    assert (bound >= exact - 1e-12).all()
    assert (bound <= 1).all()
    assert (bound_binomial_excess(excess, 2 * n, level) >= bound - 1e-12).all()
    assert bound_binomial_excess(np.array([n * (1 - level) + 1e-6]), n, level) == 0


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize(("n", "noise"), [(100, 1.0), (400, 8.0), (3000, 20.0)])
def test_a_threshold_that_covers_too_little_is_certified_in_few_worlds(n, noise, weight):
    """Fails if noise or sampling is left out of the bound.

    The true coverage of the threshold .9 is .9 less almost nothing, so certifying it is wrong.
    """
    generator = np.random.default_rng(n)
    edges = np.array([0.9])
    n_worlds = 1000
    n_covered = generator.binomial(n, 0.9 - 1e-9, n_worlds)
    exact = weight * np.column_stack([n_covered, n - n_covered])
    noisy = exact + generator.normal(0, noise, exact.shape)
    wrong = sum(
        ScoreHistogram(None, edges, counts, noise, 0.05).find_threshold(0.9) is not None
        for counts in noisy
    )
    assert stats.binom.sf(wrong - 1, n_worlds, 0.05) > 1e-4
    naive = (0.1 * noisy[:, 0] - 0.9 * noisy[:, 1] > 0).mean()
    assert naive > 0.3, "without a bound, every second world would be wrong"


@pytest.mark.parametrize(
    ("load", "edges", "per_class"),
    [(load_breast_cancer, TWO_CLASS_THRESHOLDS, True), (load_digits, ADAPTIVE_THRESHOLDS, False)],
    ids=["two classes, for each", "ten classes"],
)
def test_sets_cover_as_promised_and_not_after_a_shift(load, edges, per_class):
    """Outcomes are sampled from the data set, so that the true coverage is known exactly.

    The control is a shift: future outcomes are those of the hardest fifth of the rows.
    """
    x, y = load(return_X_y=True)
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    order = np.random.default_rng(0).permutation(len(x))
    train, rest = order[:100], order[100:]
    model = LogisticRegression(max_iter=200).fit(x[train], y[train])
    scores, truth = compute_class_scores(model.predict_proba(x[rest])), y[rest]
    edges = np.array(edges)
    true_scores = scores[np.arange(len(truth)), truth]
    groups = [truth == label for label in np.unique(truth)] if per_class else [truth >= 0]
    hard = np.argsort(np.argsort(true_scores)) >= 0.8 * len(truth)
    level = 0.9
    generator = np.random.default_rng(7)
    n_repetitions = 250
    wrong, wrong_shifted, certified = 0, 0, 0
    for _ in range(n_repetitions):
        drawn = generator.integers(len(truth), size=800)
        is_wrong, is_wrong_shifted = False, False
        for group in groups:
            bins = np.searchsorted(edges, true_scores[drawn][group[drawn]])
            counts = np.bincount(bins, minlength=len(edges) + 1)
            noisy = counts + generator.normal(0, 3.0, len(counts))
            error = compute_max_error(0, len(groups))
            threshold = ScoreHistogram(None, edges, noisy, 3.0, error).find_threshold(level)
            if threshold is not None:
                certified += 1
                is_wrong |= (true_scores[group] <= threshold).mean() < level
                is_wrong_shifted |= (true_scores[group & hard] <= threshold).mean() < level
        wrong += is_wrong
        wrong_shifted += is_wrong_shifted
    assert certified > 0.9 * n_repetitions * len(groups)
    assert stats.binom.sf(wrong - 1, n_repetitions, compute_max_error(0)) > 1e-4, wrong
    assert wrong_shifted > 0.3 * n_repetitions, "the control detects that the assumption fails"


def test_more_outcomes_or_less_noise_give_smaller_thresholds():
    generator = np.random.default_rng(0)
    uniform = np.linspace(0, 1, 5000)
    few = make_histogram(uniform[::20], 6.0, generator)
    many = make_histogram(uniform, 6.0, generator)
    noisy = make_histogram(uniform, 60.0, generator)
    assert many.find_threshold(0.95) < noisy.find_threshold(0.95)
    assert few.find_threshold(0.99) is None
    required = few.describe_level(0.99)["required_outcomes"]
    assert count_required_outcomes(N_BINS, 6.0, 0.025, 0.9) < required < 5000
    for n_outcomes, is_enough in ((required, True), (required - 1, False)):
        counts = np.array([n_outcomes, *np.zeros(N_BINS - 1)])
        histogram = ScoreHistogram(None, THRESHOLDS, counts, 6.0, 0.025)
        assert (histogram.find_threshold(0.99) is not None) == is_enough


def test_no_threshold_below_one_that_fails_is_certified():
    """The fixed order of the tests: without it, each further test would need its own error."""
    counts = np.zeros(N_BINS)
    counts[0] = 5000
    counts[-1] = 600  # the largest threshold covers .89
    histogram = ScoreHistogram(None, THRESHOLDS, counts, 1.0, 0.025)
    assert histogram.find_threshold(0.9) is None
    passes = iter([True, True, False, *[True] * N_BINS])
    object.__setattr__(histogram, "check_threshold", lambda *_: next(passes))
    assert histogram.find_threshold(0.9) == THRESHOLDS[-2]


def test_the_bound_uses_an_upper_bound_on_the_number_of_subjects():
    """The p-value is at least the bound for the number plus its quantile, noise in all bins."""
    noise, max_error = 30.0, 0.025
    counts = np.array([180.0, *np.zeros(N_BINS - 1)])
    histogram = ScoreHistogram(None, THRESHOLDS, counts, noise, max_error)
    margin = -special.ndtri(0.05 * max_error) * noise * N_BINS**0.5
    used = []

    def record(excess, n_subjects, level):
        used.append(n_subjects)
        return bound_binomial_excess(excess, n_subjects, level)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coverage_module, "bound_binomial_excess", record)
        histogram.check_threshold(3, 0.9)
    assert used == [math.ceil(180 + margin)]


def test_no_number_of_outcomes_is_promised_where_none_suffices():
    """After hundreds of calibrations the error probability is below that of the integration."""
    assert count_required_outcomes(N_BINS, 5.0, compute_max_error(300), 0.9) is None
    hopeless = ScoreHistogram(None, THRESHOLDS, np.zeros(N_BINS), 5.0, compute_max_error(300))
    assert hopeless.describe_level(0.9)["required_outcomes"] is None


def test_the_promise_states_its_level_exactly_and_its_age():
    certified = CertifiedThresholds(0.99996, (None,), (0.5,), None, 700)
    promise = certified.describe(n_answers=1000, of_classes=False)
    assert "intervals contain at least 0.99996 of future outcomes. Each subject counts" in promise
    assert "remaining budgets similar to those that the evaluated answers met" in promise
    assert promise.endswith("Calibrated at answer 700; now there are 1000.")


def test_a_promise_without_thresholds_names_few_of_many_classes():
    """It is a header of HTTP, which proxies limit to 4 KiB."""
    names = tuple(f"department {index}" for index in range(1000))
    certified = CertifiedThresholds(0.9, names, (None,) * 1000, None, 0)
    promise = certified.describe(n_answers=5, of_classes=True)
    assert "for department 0, department 1, department 2, department 3, department 4" in promise
    assert "4 and 995 more: no number of outcomes up to 16777216 suffices at the noise" in promise
    assert len(promise) < 1000


def test_the_required_number_of_outcomes_is_that_of_the_neediest_class():
    def certify(*noises):
        histograms = [
            ScoreHistogram(name, THRESHOLDS, np.zeros(N_BINS), noise, 0.0125).to_dict()
            for name, noise in enumerate(noises)
        ]
        stored = {"coverage": {"histograms": histograms, "version": 0, "n_answers": 0}}
        database = SimpleNamespace(get=lambda _: json.dumps([stored]))
        return certify_coverage(database, 0, 0, 0.9).required_outcomes

    assert certify(5.0) < certify(20.0) == certify(20.0, 5.0) == certify(5.0, 20.0)
    assert certify(1e6) is certify(5.0, 1e6) is certify(1e6, 5.0) is None


def test_outcomes_that_chance_explains_are_no_drift():
    """Compared with the exact tail of the number of uncovered outcomes, without noise."""
    for level in LEVELS:
        for n_uncovered in range(1, 200):
            counts = np.zeros(N_BINS)
            counts[[0, -1]] = 400 - n_uncovered, n_uncovered
            histogram = ScoreHistogram(None, THRESHOLDS, counts, 1e-6, 0.025)
            p_value = stats.binom.sf(n_uncovered - 1, 400, 1 - level)
            if histogram.refutes_coverage(THRESHOLDS[0], level):
                assert p_value <= 0.025
            else:
                assert p_value > 0.001


def test_the_error_probabilities_of_all_evaluations_add_up_to_five_percent():
    errors = [2 * compute_max_error(n_earlier, n_histograms=2) for n_earlier in range(100_000)]
    assert 0.04999 < sum(errors) <= 0.05
    assert errors == sorted(errors, reverse=True)


def test_drift_is_reported_after_a_shift_and_seldom_without():
    generator = np.random.default_rng(1)
    first = make_histogram(generator.random(3000), 5.0, generator)
    tiny = make_histogram(generator.random(30), 5.0, generator)
    wide = make_histogram(generator.random(3000) ** 0.3, 5.0, generator)

    fields_of = {id(histogram): histogram.to_dict() for histogram in (first, tiny, wide)}

    def find_drift(current, *earlier, name=None):
        calibrations = [
            {"histograms": [{**fields_of[id(histogram)], "name": name}]} for histogram in earlier
        ]
        return find_drifted_levels(calibrations, [current])

    def sample():
        return make_histogram(generator.random(3000), 5.0, generator)

    assert sum(bool(find_drift(sample(), first)) for _ in range(200)) <= 5
    assert find_drift(wide, first) == [0.8, 0.9, 0.95]
    assert find_drift(wide) == []
    assert find_drift(wide, first, tiny) == [0.8, 0.9, 0.95], "a small evaluation hides nothing"
    assert find_drift(wide, wide, first, wide) == [0.8, 0.9, 0.95]
    assert find_drift(wide, first, name="ill") == [], "only the same statement is compared"


# ------------------------------------------------------------ scores


def test_a_score_is_the_probability_of_all_classes_that_are_more_probable():
    scores = compute_class_scores(np.array([[0.2, 0.5, 0.3], [0.25, 0.25, 0.5]]))
    np.testing.assert_allclose(scores, [[0.8, 0, 0.5], [0.5, 0.75, 0]])
    np.testing.assert_allclose(compute_class_scores(np.array([[0.2, 0.8]])), [[0.8, 0.2]])
    np.testing.assert_allclose(np.add(TWO_CLASS_THRESHOLDS, TWO_CLASS_THRESHOLDS[::-1]), 1)


def test_a_set_has_the_most_probable_class_whatever_the_threshold():
    certified = CertifiedThresholds(0.5, (None,), (0.2,), None, 0)
    sets = certified.select_classes(["a", "b"], np.array([[0.4, 0.6], [0.5, 0.5], [0.9, 0.1]]))
    assert sets.tolist() == [["b"], ["a"], ["a"]]


@pytest.mark.parametrize(
    ("bounds", "scale"),
    [
        *(((1, 120), "log"), ((3, 18), "log"), ((10, 50), "log"), ((24, 65), "log")),
        *(((0.9, 1.1), "log"), ((0, 110), "linear"), ((-0.3, 0.1), "linear")),
        ((1e6, 1e6 + 1), "linear"),
    ],
)
def test_an_interval_has_every_outcome_that_its_threshold_covers(bounds, scale):
    """Without a tolerance, at the bounds and where the error is the threshold, to a rounding."""
    target = declared_target({"bounds": bounds, "scale": scale})
    generator = np.random.default_rng(5)
    answers = generator.uniform(*bounds, (4000, 1))
    transformed_bounds = target.transformed_bounds
    threshold = 0.25 * float((transformed_bounds.high - transformed_bounds.low)[0])
    certified = CertifiedThresholds(0.9, ("number",), (threshold,), None, 0)
    low, high = certified.bound_numbers(target, answers)
    assert (low >= bounds[0]).all()
    assert (high <= bounds[1]).all()
    released = ReleasedNumbers(target, np.log(answers) if scale == "log" else answers, 1.0)
    truths = [np.full_like(answers, bound) for bound in bounds]
    for sign in (-1, 1):
        end = released.answers + sign * threshold
        at_threshold = np.exp(end) if scale == "log" else end
        # Up to eight units in the last place beyond the end, where rounding decides.
        truths += [at_threshold + sign * n * np.spacing(np.abs(at_threshold)) for n in range(9)]
    for truth in truths:
        clipped = np.clip(truth, *bounds)
        errors = np.abs(released.answers - released.encode_truth(clipped.ravel(), len(clipped)))
        assert ((low <= clipped) & (clipped <= high))[errors <= threshold].all()


def test_tables_with_ambiguous_sets_or_intervals_are_refused():
    kept = declared_target({"bounds": {"age": (0, 1), "stay": (0, 1)}})
    assert name_coverage_columns(kept) == ["low_age", "high_age", "low_stay", "high_stay"]
    for target, problem in (
        ({"classes": ["a;b", "c"]}, "A class name contains ';'"),
        ({"bounds": {"low": (0, 1)}}, "already have one of the columns low, high"),
        (
            {"bounds": {"age": (0, 1), "high_age": (0, 1)}},
            "already have one of the columns low_age",
        ),
    ):
        with pytest.raises(NoCoverage, match=problem):
            name_coverage_columns(declared_target(target))


# ------------------------------------------------------------ stores

N = 1500
rng = np.random.default_rng(3)
X, R, Q, NEW = (rng.normal(size=(size, 3)) for size in (N, 100, 700, 400))
IDS = [f"p{i}" for i in range(N)]
VISITORS = [f"v{i}" for i in range(len(Q))]


def classes(rows):
    return np.array(["well", "ill", "=odd"])[(rows[:, 0] > 0).astype(int) + (rows[:, 1] > 1)]


def two_classes(rows):
    return (rows[:, 0] + rows[:, 2] > 0.5).astype(int)


def numbers(rows):
    noise = np.sin(1e4 * rows[:, 2])
    return np.stack([50 + 20 * np.tanh(rows[:, 0]) + 5 * noise, 5 + rows[:, 1]], axis=1)


def ages(rows):
    return numbers(rows)[:, 0]


KINDS = {
    "classes": (classes, {"classes": ["well", "ill", "=odd"]}),
    "two": (two_classes, {"classes": [0, 1]}),
    "numbers": (numbers, {"bounds": {"age": (0, 110), "stay": (0, 10)}}),
    "log": (ages, {"bounds": (1, 110), "scale": "log"}),
}


def make_store(folder, target_of, target, size=200, **plan):
    """Return a new store of `size` records, one per subject; `target` declares their targets."""
    settings = {"public": R, "n_records": size, "epsilon": 8.0, "n_queries": 900, **target, **plan}
    return Store.init(folder, X[:size], target_of(X[:size]), IDS[:size], **settings)


@contextmanager
def silent_noise(store):
    """Evaluate the store without noise inside the body."""
    with pytest.MonkeyPatch.context() as patch:
        tools.silence_noise(store, patch)
        yield


def write_csv(path, header, rows):
    lines = [",".join(map(str, row)) for row in [header, *rows.tolist()]]
    path.write_text("\n".join(lines))
    return str(path)


def predict_covered(store, kind, rows, level):
    predict = store.predict_set if kind == "classes" else store.predict_interval
    return predict(rows, coverage=level)


@pytest.mark.parametrize("kind", ["classes", "numbers", "log"])
def test_sets_and_intervals_cover_new_outcomes_at_no_further_charge(tmp_path, kind):
    with make_store(tmp_path / "store", *KINDS[kind], size=N, n_queries=2000) as store:
        store.predict(Q)
        check_coverage(store, kind)


def check_coverage(store, kind):
    left = store.quota().left
    with pytest.raises(InvalidInput, match="vicinal evaluate"):
        predict_covered(store, kind, NEW[:3], 0.9)
    assert store.quota().left == left, "nothing is charged without a calibration"
    target_of = KINDS[kind][0]
    plain = store.evaluate(Q[:300], target_of(Q[:300]), VISITORS[:300], share=0.1)
    assert "coverage" not in plain.to_dict()
    with pytest.raises(InvalidInput, match="vicinal evaluate"):
        predict_covered(store, kind, NEW[:3], 0.9)
    evaluation = store.evaluate(Q, target_of(Q), VISITORS, share=1.0, coverage="overall")
    calibration = evaluation.coverage
    assert calibration.drifted_levels == []
    thresholds = [histogram.find_threshold(0.9) for histogram in calibration.histograms]
    assert None not in thresholds
    answers = store.predict(NEW)
    assert answers.promise is None
    assert not {"sets", "low", "promise"} & answers.to_dict().keys()
    remaining = tools.remaining(store)
    covered = predict_covered(store, kind, NEW, 0.9)
    assert covered.charged == 0
    np.testing.assert_array_equal(tools.remaining(store), remaining)
    np.testing.assert_array_equal(covered.labels, answers.labels)
    truth = target_of(NEW)
    contents = "sets" if kind == "classes" else "intervals"
    of_each = " of each number" if kind == "numbers" else ""
    caveat = f" {coverage_module.OVERALL_CAVEAT}" if kind == "classes" else ""
    assert covered.promise == (
        f"With 95% confidence for this level by itself, the {contents} contain at least 0.9 of "
        f"future outcomes{of_each}.{caveat} Each subject counts once, however many rows it has. "
        "Assumed: future rows resemble the evaluated rows, and meet remaining budgets similar to "
        "those that the evaluated answers met. Evaluate outcomes of recent answers. Calibrated "
        "at answer 700; now there are 1100."
    )
    if kind == "classes":
        hits = np.array([label in row for label, row in zip(truth, covered.sets, strict=True)])
        assert hits.mean() > 0.87
        best = np.array(store.schema.classes)[answers.probabilities.argmax(axis=1)]
        assert [row[0] for row in covered.sets] == best.tolist()
        assert np.mean([len(row) for row in covered.sets]) < 2
    else:
        truth = truth.reshape(len(NEW), -1)
        assert ((covered.low <= truth) & (truth <= covered.high)).mean(axis=0).min() > 0.87
        bounds = store.schema.target.bounds
        assert (covered.low >= bounds.low).all()
        assert (covered.high <= bounds.high).all()
        assert ((covered.high - covered.low).mean(axis=0) < 0.8 * (bounds.high - bounds.low)).all()
    narrow = predict_covered(store, kind, NEW, 0.8)
    if kind == "classes":
        pairs = zip(narrow.sets, covered.sets, strict=True)
        assert all(large[: len(small)] == small for small, large in pairs)
    else:
        assert (narrow.high - narrow.low <= covered.high - covered.low + 1e-9).all()
    # Without a certified threshold, everything is in the set or interval.
    reply = predict_covered(store, kind, NEW[:5], 0.9999)
    assert re.search(r"No threshold could be certified.*: this needs at least \d+", reply.promise)
    if kind == "classes":
        assert all(sorted(row) == sorted(store.schema.classes) for row in reply.sets)
    else:
        assert (reply.low == store.schema.target.bounds.low).all()
        assert (reply.high == store.schema.target.bounds.high).all()


def compute_contribution(store, monkeypatch, target_of, coverage, with_victim):
    """Return all cells without noise, their tally, and the charge of each subject."""
    released = []
    publish = NoisyTally.publish

    def record(tally, sums):
        released.append((sums.copy(), tally))
        return publish(tally, sums)

    monkeypatch.setattr(NoisyTally, "publish", record)
    ids = [*VISITORS[:30], *IDS[:1] * (2 if with_victim else 0)]
    rows = Q[: len(ids)]
    before = tools.left_of(store)
    store.evaluate(rows, target_of(rows), ids, share=0.01, accept_noise=True, coverage=coverage)
    after = tools.left_of(store)
    ((sums, tally),) = released
    return sums, tally, np.array([before[subject] - after[subject] for subject in IDS[:200]])


@pytest.mark.parametrize(
    ("name", "coverage"),
    [
        *(("classes", "overall"), ("classes", "per-class")),
        *(("two", "overall"), ("two", "per-class"), ("numbers", "overall")),
    ],
)
def test_two_worlds_differ_by_the_contribution_that_the_victim_pays(
    name, coverage, tmp_path, monkeypatch
):
    """Every released value depends on the victim by a vector whose norm its charge covers."""
    target_of, target = KINDS[name]
    worlds = []
    for with_victim in (False, True):
        opened = make_store(tmp_path / f"{with_victim}", target_of, target, model_share=0)
        with opened, silent_noise(opened), monkeypatch.context() as patch:
            opened.predict(Q[:60])
            world = compute_contribution(opened, patch, target_of, coverage, with_victim)
            worlds.append(world)
    (without, tally, no_charges), (with_victim, other_tally, charges) = worlds
    assert tally.plan == other_tally.plan
    assert tally.scale == other_tally.scale
    assert not no_charges.any()
    assert not charges[1:].any(), "only the victim pays"
    difference = with_victim - without
    tables = np.split(difference, np.cumsum(tally.plan.sizes)[:-1])
    assert len(tables) == (4 if name == "numbers" else 2), "no table more than without coverage"
    for table in tables:
        assert (table >= 0).all()
        assert 0 < table.sum() <= tally._grid.steps
    squared_norm = float((difference.astype(float) ** 2).sum())
    price = squared_norm / (2 * tally.scale**2 * tally.plan.budget)
    assert price * UNITS <= charges[0] <= 0.01 * UNITS + 1


def test_two_classes_keep_their_auc_and_get_sets_for_each_class(tmp_path):
    truth = two_classes(Q)
    with make_store(tmp_path / "store", *KINDS["two"], size=N, n_queries=2000) as opened:
        reply = opened.predict(Q)
        with silent_noise(opened):
            exact = opened.evaluate(Q, truth, VISITORS, share=0.5, coverage="overall")
        np.testing.assert_allclose(exact.scores.sum(axis=1), exact.confusion.sum(axis=1), atol=1e-4)
        auc = exact.compute_metrics(exact.counts)["auc"]
        assert auc == pytest.approx(roc_auc_score(truth, reply.probabilities[:, 1]), abs=0.02)
        scores = 1 - reply.probabilities[np.arange(len(truth)), truth]
        n_within = [(scores <= threshold).sum() for threshold in TWO_CLASS_THRESHOLDS]
        (histogram,) = exact.coverage.histograms
        np.testing.assert_allclose(np.cumsum(histogram.counts)[:-1], n_within, atol=1e-3)
        assert histogram.noise == pytest.approx(2**0.5 * exact.noise)
        per_class = opened.evaluate(Q, truth, VISITORS, share=0.5, coverage="per-class")
        assert [histogram.name for histogram in per_class.coverage.histograms] == [0, 1]
        assert per_class.noise == pytest.approx(exact.noise)
        covered = opened.predict_set(NEW, coverage=0.8)
        assert "at least 0.8 of future outcomes of each class." in covered.promise
        new_truth = two_classes(NEW)
        hits = np.array([y in row for y, row in zip(new_truth, covered.sets, strict=True)])
        assert min(hits[new_truth == label].mean() for label in (0, 1)) > 0.78
        rare = opened.predict_set(NEW[:3], coverage=0.999)
        assert re.search(
            r"certified for 0, 1: this needs at least \d+ outcomes of each", rare.promise
        )
        with pytest.raises(InvalidInput, match="coverage"):
            opened.evaluate(Q, truth, VISITORS, coverage="every")


def test_several_numbers_share_the_error_and_count_the_errors_exactly(tmp_path):
    truth = numbers(Q)
    opened = make_store(tmp_path / "store", *KINDS["numbers"])
    with opened, silent_noise(opened):
        answers = opened.predict(Q).labels
        evaluation = opened.evaluate(Q, truth, VISITORS, share=0.5, coverage="overall")
    errors = np.abs(answers - truth)
    for index, histogram in enumerate(evaluation.coverage.histograms):
        n_within = [(errors[:, index] <= edge).sum() for edge in histogram.thresholds]
        np.testing.assert_allclose(np.cumsum(histogram.counts)[:-1], n_within, atol=1e-3)
        assert histogram.noise == pytest.approx(2**0.5 * evaluation.noise)
        assert histogram.max_error == compute_max_error(0, n_histograms=2)


def test_a_calibration_holds_for_one_version_of_the_data(tmp_path, monkeypatch):
    truth = two_classes(Q)
    opened = make_store(tmp_path / "store", *KINDS["two"])
    with opened, silent_noise(opened):
        opened.predict(Q[:60])
        opened.predict(NEW[:3], idempotency_key="old")

        def evaluate(visitor, kind="overall"):
            ids = [f"{visitor}{i}" for i in range(60)]
            return opened.evaluate(
                Q[:60], truth[:60], ids, share=0.5, accept_noise=True, coverage=kind
            ).coverage

        first = evaluate("first")
        assert first.version == opened._store.ledger.version
        assert first.n_answers == 63
        assert "at answer 63; now there are 63." in opened.predict_set(Q[:2], coverage=0.5).promise
        opened.erase(IDS[:1])
        left = opened.quota().left
        with pytest.raises(NoCoverage, match="the data changed since the last one"):
            opened.predict_set(NEW[9:], coverage=0.5)
        with pytest.raises(NoCoverage, match="requires answers given since the last change"):
            evaluate("second")
        assert opened.quota().left == left
        assert len(opened.facts()["audiences"]["default"]["evaluations"]) == 1
        opened.predict(Q[:20])
        compared = []
        with monkeypatch.context() as patch:
            patch.setattr(
                evaluation_module,
                "find_drifted_levels",
                lambda earlier, _: compared.append(earlier),
            )
            evaluate("other")
        assert compared == [[]], "statements on other versions are not compared"
        second = evaluate("second", "per-class")
        assert second.n_answers == 83
        n_counted = sum(histogram.counts.sum() for histogram in second.histograms)
        assert n_counted == pytest.approx(20, abs=1e-3)
        assert {histogram.max_error for histogram in second.histograms} == {compute_max_error(2, 2)}
        assert second.drifted_levels == []
        assert "at answer 83; now there are 83." in opened.predict_set(Q[:2], coverage=0.5).promise
        with pytest.raises(NoCoverage, match="'idempotency_key' are older"):
            opened.predict_set(NEW[:3], coverage=0.5, idempotency_key="old")
        assert opened.predict(NEW[:3], idempotency_key="old").charged == 0
        assert opened.predict_set(NEW[:3], coverage=0.5, idempotency_key="new").charged == 3
        assert opened.predict_set(NEW[:3], coverage=0.5, idempotency_key="new").charged == 0
        later = opened.predict_set(Q[100:118], coverage=0.5).promise
        assert "at answer 83; now there are 104." in later
        plain, covered = opened.predict_many(
            [Query(NEW[20:22], idempotency_key="pair", coverage=level) for level in (None, 0.5)]
        )
        assert plain.sets is None, "requests of one key may differ in their coverage"
        assert len(covered.sets) == 2


@pytest.mark.parametrize(
    ("name", "columns", "covered"),
    [
        ("classes", ["y"], "set"),
        ("numbers", ["age", "stay"], "low_age,high_age,low_stay,high_stay"),
    ],
)
def test_the_commands_calibrate_and_write_sets_and_intervals(name, columns, covered, tmp_path):
    target_of, target = KINDS[name]
    folder = str(tmp_path / "store")
    with make_store(folder, target_of, target, size=600) as opened:
        opened.predict(Q)
    rows = np.column_stack([Q.astype(object), target_of(Q).astype(object), VISITORS])
    outcomes = write_csv(tmp_path / "outcomes.csv", [*"abc", *columns, "who"], rows)
    queries = write_csv(tmp_path / "new.csv", "abc", NEW[:6])

    predict = ("predict", folder, "--data", queries, "--coverage", ".9")
    assert "--coverage option requires a calibration" in shown(*predict, code=2)
    label = ("--label", "y") if name == "classes" else ()
    evaluate = ("evaluate", folder, "--data", outcomes, *label, "--subject", "who")
    report = shown(*evaluate, "--share", "1", "--coverage", "overall")
    assert "Certified coverage of" in report
    assert "0.9: yes, threshold" in report
    result = invoked(*predict)
    header, *rows = result.stdout.splitlines()
    assert header.endswith(f",{covered}")
    assert len(rows) == 6
    assert "contain at least 0.9 of future outcomes" in result.stderr
    fields = json.loads(printed(*predict, "--json"))
    if name == "classes":
        assert [row.split(",")[-1].split(";") for row in rows] == fields["sets"]
        report = shown(*evaluate, "--coverage", "per-class", "--accept-noise")
        assert re.search(r"=odd: 0.99: needs at least \d+ outcomes at this noise", report)
        text = invoked(*predict[:-1], ".9999").stderr
        assert "No threshold could be certified for" in text
        assert re.search(r"The set (\S+);(\S+);(\S+) means \1 or \2 or \3: not excluded", text)
    else:
        assert len(fields["low"]) == len(fields["high"]) == 6
    shown(*predict[:-1], "1.5", code=2)


def test_class_names_with_the_separator_get_sets_in_json_alone(tmp_path):
    names = np.array(["a;b", "c"])
    folder = str(tmp_path / "store")
    with make_store(folder, lambda rows: names[two_classes(rows)], {"classes": names}) as opened:
        opened.predict(Q)
        opened.evaluate(Q, names[two_classes(Q)], VISITORS, share=1, coverage="overall")
    queries = write_csv(tmp_path / "new.csv", "abc", NEW[:4])
    options = ["predict", folder, "--data", queries, "--coverage", ".9"]
    for table in ([], ["--json", "--out", str(tmp_path / "out.csv")]):
        refusal = shown(*options, *table, code=2)
        assert "--coverage option is not possible in a table" in refusal
        with Store.open(folder) as opened:
            assert opened.quota().used == len(Q), "nothing is charged"
    assert not (tmp_path / "out.csv").exists()
    answers = json.loads(printed(*options, "--json"))
    assert all(set(row) <= set(names) for row in answers["sets"])


def test_labels_outside_their_sets_are_counted(tmp_path):
    """Fails if the label "ill" beside the set "well" is printed without an explanation."""
    names = np.array(["well", "ill"])

    def classes_of(rows):
        return names[(rows[:, 0] > 1.2).astype(int)]

    target = {"classes": names, "class_prior": [0.9, 0.1], "cost": [1, 1000]}
    with make_store(tmp_path / "store", classes_of, target) as opened:
        opened.predict(Q)
        opened.evaluate(Q, classes_of(Q), VISITORS, share=1, coverage="overall")
        reply = opened.predict_set(NEW[:50], coverage=0.8)
    pairs = zip(reply.labels, reply.sets, strict=True)
    n_outside = sum(label not in contents for label, contents in pairs)
    assert n_outside > 1, "the costs are too small for this test"
    queries = write_csv(tmp_path / "new.csv", "abc", NEW[:50])
    command = ["predict", tmp_path / "store", "--data", queries, "--coverage", ".8"]
    warning = f"{n_outside} labels are not in their sets: with --cost"
    assert warning in invoked(*command).stderr


@pytest.mark.parametrize(
    ("target_of", "target"),
    [
        (two_classes, {"release": "label", "classes": [0, 1]}),
        (lambda rows: (rows[:, :2] > 0).astype(int), {"labels": ["a", "b"]}),
    ],
    ids=["label alone", "label sets"],
)
def test_a_store_without_probabilities_refuses_coverage_with_advice(tmp_path, target_of, target):
    with make_store(tmp_path / "store", target_of, target, model_share=0) as opened:
        left = opened.quota().left
        with pytest.raises(InvalidInput, match="needs classes with probabilities"):
            opened.predict(Q[:2], coverage=0.9)
        assert opened.quota().left == left
        with pytest.raises(InvalidInput, match="needs classes with probabilities"):
            opened.evaluate(X[:2], target_of(X[:2]), IDS[:2], coverage="overall")
        if "classes" in target:
            with pytest.raises(InvalidInput, match="other targets"):
                opened.predict_interval(Q[:2], coverage=0.9)
            with pytest.raises(InvalidInput, match="coverage"):
                opened.predict_set(Q[:2], coverage=None)
        else:
            with pytest.raises(InvalidInput, match="other targets"):
                opened.predict_set(Q[:2], coverage=0.9)
