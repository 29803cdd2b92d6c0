"""Decisions by rules on counts, against enumeration with exact fractions and published values."""

import json
import math
import pickle
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.special import rel_entr
from scipy.stats import binom

from command_line import printed as run
from smoothed import brute
from smoothed.test_brute_force import (
    SAMPLERS,
    WORLDS,
    assert_equals_enumeration,
    assert_smoothed_equals_enumeration,
)
from vicinal.errors import InvalidInput
from vicinal.progress import show_progress
from vicinal.reports.smoothed_audit import audit_smoothed_dp, build_from_spec, format_audit
from vicinal.smoothed import (
    Decision,
    FixedSize,
    Heterogeneous,
    Histogram,
    ListedRule,
    Plurality,
    Poisson,
    Threshold,
    Vertices,
    WithReplacement,
    adjusted_utility,
    database_delta,
    profile,
    quantiles,
    smoothed_delta,
    worst_case_delta,
)
from vicinal.smoothed._expectation import (
    StoredLogDeltas,
    TwoTypeWorld,
    _make_unimodal_majorant,
    _maximize_unimodal_mean,
)
from vicinal.smoothed.intervals import format_interval, format_power_of_ten

EXAMPLES = Path(__file__).parents[2] / "examples" / "smoothed"
ALL = pytest.param(None, brute.sample_all, id="all records")


def decide_plurality(ties):
    """Return a function from counts to {outcome: probability}, written independently."""

    def list_winners(counts):
        tied = [index for index, count in enumerate(counts) if count == max(counts)]
        if ties == "random":
            return dict.fromkeys(tied, Fraction(1, len(tied)))
        return {tied[0] if ties == "first" or len(tied) == 1 else frozenset(tied): 1}

    return list_winners


RULES = {
    "first": (Plurality("first"), decide_plurality("first")),
    "listed": (Plurality("listed"), decide_plurality("listed")),
    "random": (Plurality("random"), decide_plurality("random")),
    "at least": (Threshold(share=0.5), lambda c: {2 * c[0] >= sum(c): 1}),
    "more than": (
        Threshold(share=0.5, type_index=1, strict=True),
        lambda c: {2 * c[1] > sum(c): 1},
    ),
    "count": (Threshold(count=2), lambda c: {c[0] >= 2: 1}),
    "function": (lambda c: c[0] % 2, lambda c: {c[0] % 2: 1}),
}


def enumerate_rule(name, n_types, samples):
    decide = RULES[name][1]
    return brute.Enumeration(
        n_types, samples, lambda sample: decide(brute.count_types(sample, n_types))
    )


@pytest.mark.parametrize(("sampler", "samples"), [*SAMPLERS, ALL])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("n", "n_types"), [(7, 2), (4, 3)])
def test_every_database_against_enumeration(name, sampler, samples, n, n_types):
    enumeration, mechanism = (
        enumerate_rule(name, n_types, samples),
        Decision(RULES[name][0], sampler),
    )
    for counts in brute.list_histograms(n, n_types):
        assert_equals_enumeration(mechanism, counts, enumeration, brute.list_records(counts))


@pytest.mark.parametrize(("sampler", "samples"), [*SAMPLERS, ALL])
@pytest.mark.parametrize("name", ["first", "listed", "random", "at least", "count"])
@pytest.mark.parametrize(("n_types", "n", "vertices"), WORLDS)
def test_smoothed_deltas_against_enumeration(name, sampler, samples, n_types, n, vertices):
    assert_smoothed_equals_enumeration(
        Decision(RULES[name][0], sampler),
        vertices,
        n,
        enumerate_rule(name, n_types, samples),
        Fraction(5, 4),
    )


def test_a_rule_that_ignores_ties_is_noticed():
    """The comparison with enumeration fails if ties are decided in another way."""
    enumeration = enumerate_rule("listed", 2, brute.sample_fixed_size(4))
    broken = Decision(lambda c: int(c[1] > c[0]), FixedSize(4))
    with pytest.raises(AssertionError):
        assert_equals_enumeration(broken, (4, 3), enumeration, brute.list_records((4, 3)))


@pytest.mark.parametrize("sampler", [FixedSize(41), WithReplacement(41), FixedSize(99), None])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0])
def test_counts_are_an_upper_bound_and_runs_agree_with_lists(name, sampler, epsilon, monkeypatch):
    """Two programs for two types: sums over runs, and lists of all samples."""
    mechanism, n = Decision(RULES[name][0], sampler), 120
    lower, upper = profile(mechanism, n, epsilon)
    counts_upper = profile(Histogram(mechanism.get_sampler(n)), n, epsilon)[1]
    assert (lower <= counts_upper).all()
    assert (upper <= counts_upper + 1e-7).all()
    monkeypatch.setattr(Decision, "can_tabulate", lambda *_: False)
    for k in (0, 1, 50, 59, 60, 61, 120):
        listed = max(
            interval.high
            for interval in mechanism.iterate_divergences(np.array([k, n - k]), epsilon)
        )
        # Cancellation at epsilon 0 leaves an error of 1e-12 in the listed sum.
        assert math.exp(lower[k]) <= math.exp(listed) * (1 + 1e-12)
        assert math.exp(upper[k]) == pytest.approx(math.exp(listed), rel=1e-9, abs=1e-11)


def test_an_election_without_sampling_is_the_probability_of_a_decisive_record():
    n = 100_000
    delta = smoothed_delta(Decision(Plurality()), Vertices([[0.5, 0.5]]), n, 0.3)
    # With an even n, a record decides between n / 2 and n / 2 - 1 records of the first type.
    log_half = math.lgamma(n + 1) - 2 * math.lgamma(n / 2 + 1) - n * math.log(2)
    exact = math.exp(log_half) * (1 + (n / 2) / (n / 2 + 1))
    assert delta.upper == pytest.approx(exact, rel=1e-9)
    assert delta.log_upper - delta.log_lower < 1e-9
    worst = worst_case_delta(Decision(Plurality()), n, 0.3, n_types=2)
    assert (worst.method, worst.upper) == ("exact", 1.0)


@pytest.mark.parametrize("sampler", [None, FixedSize(19_900)])
def test_tiny_deltas_at_epsilon_0_are_not_hidden_by_rounding(sampler):
    """The probabilities of the usual winner are near 1 and would cancel."""
    delta = smoothed_delta(Decision(Plurality(), sampler), Vertices([[0.3, 0.7]]), 20_000, 0.0)
    assert delta.log_upper - delta.log_lower < 1e-6
    assert delta.log10_upper < -300


def test_unimodal_majorants():
    rng = np.random.default_rng(5)
    for _ in range(50):
        values = rng.normal(size=12)
        majorant = _make_unimodal_majorant(values)
        steps = np.sign(np.diff(majorant))
        assert (majorant >= values).all()
        assert (np.diff(steps[steps != 0]) <= 0).all()
        assert majorant.max() == values.max()


def test_the_likely_maximum_is_that_of_all_databases():
    """Deltas at random, and deltas whose maximum is far from the mean: falling, and a single 1."""
    rng = np.random.default_rng(6)
    for n in rng.integers(1, 400, 50).tolist():
        world, k = TwoTypeWorld((n,), (float(rng.uniform()),)), np.arange(n + 1)
        deviances = rel_entr(k, world.mean) + rel_entr(n - k, n - world.mean)
        for log_deltas in (
            -rng.exponential(rng.choice([1e-6, 300.0]), n + 1),
            -rng.uniform(0, 4) * k,
            np.where(k == k[deviances < 8].max(), 0.0, -8.0),
        ):
            found = StoredLogDeltas(np.stack([log_deltas, log_deltas])).find_likely_maximum(world)
            assert found == np.argmax(log_deltas - deviances)


@pytest.mark.parametrize(
    ("row", "n", "count"), [([1e-3, 0.999], 200, 150), ([1e-12, 0.5, 0.5 - 1e-12], 36, 30)]
)
def test_products_of_probabilities_do_not_underflow_to_an_exact_0(row, n, count):
    """Means below 1e-308 once had the upper end 0."""
    # A record is decisive if there are count - 1 others, or hardly ever count others, of its type.
    log_delta = float(binom.logpmf(count - 1, n, row[0]))
    for population in (Vertices([row]), Heterogeneous([(n, row)])):
        delta = smoothed_delta(Decision(Threshold(count=count)), population, n, 1.0)
        assert delta.log_upper > log_delta - 0.1
        assert delta.log_lower < log_delta + 0.1
        assert delta.method == "exact" or delta.log_upper > delta.log_lower


def test_no_histogram_of_a_private_database_is_kept():
    mechanism = Decision(Plurality(), FixedSize(3))
    database_delta(mechanism, [3, 4, 2], 1.0)
    adjusted_utility(mechanism, [3, 4, 2], 0.5)
    assert mechanism._list_outcomes.cache_info().currsize == 0


def test_outcomes_with_different_texts_are_different():
    outcomes = ["no", True, 1]
    rows = [{"counts": [o, 2 - o], "outcome": outcome} for o, outcome in enumerate(outcomes)]
    assert database_delta(Decision(ListedRule(rows)), [2, 0], 1.0).upper == 1
    nested = [{**row, "outcome": (row["outcome"],)} for row in rows]
    assert database_delta(Decision(ListedRule(nested)), [2, 0], 1.0).upper == 1


def test_decisions_are_pickled_without_caches():
    mechanism = Decision(Plurality(), FixedSize(3))
    expected = database_delta(mechanism, [3, 4], 1.0)
    (restored,) = pickle.loads(pickle.dumps([mechanism]))
    assert restored == mechanism
    assert database_delta(restored, [3, 4], 1.0) == expected


@pytest.mark.parametrize("log10", [0.0, -0.30103, -17.02, -303.99, -307.9, -400.0, -5000.00001])
def test_printed_ends_are_rounded_outward(log10):
    """The texts of an upper end and a lower end enclose it, with four digits between them."""
    for log in log10 * math.log(10) + np.array([-1e-5, 1e-5]):
        low, high = (Decimal(format_power_of_ten(log, round_up=up)) for up in (False, True))
        with localcontext(prec=40):
            exact = Decimal(log).exp()
            assert low < exact < high <= low * Decimal("1.001")
    assert format_interval(math.log(0.5) - 1e-13, math.log(0.5), merge_close_ends=True) == "0.5"
    assert format_interval(math.log(0.12341), math.log(0.12341), merge_close_ends=True) == "0.1235"
    assert format_interval(-math.inf, math.log(0.12341), merge_close_ends=True) == "0 to 0.1235"


@pytest.mark.parametrize("q_minus_p", [0.4, 0.01, 1e-14])
def test_largest_mean_of_a_unimodal_function(q_minus_p):
    """The upper bound is at least the mean of every mixture, and near the largest one.

    At 1e-14 rounding hides which mixture has the largest mean.
    """
    rng = np.random.default_rng(8)
    n = 40
    for _ in range(10):
        p = rng.uniform(0.05, 0.5)
        q = p + q_minus_p
        majorant = _make_unimodal_majorant(rng.uniform(1, rng.choice([1.1, 30.0]), n + 1))
        majorant -= majorant.max() * rng.uniform(1, 2)
        means = []
        for n_second in range(n + 1):
            distribution = np.ones(1)
            for probability in [q] * n_second + [p] * (n - n_second):
                distribution = np.convolve(distribution, [1 - probability, probability])
            means.append(math.log(distribution @ np.exp(majorant)))
        _, upper = _maximize_unimodal_mean(majorant, n, p, q)
        assert max(means) <= upper + 1e-12
        assert upper < max(means) + 1e-9


@pytest.mark.parametrize("sampler", [None, FixedSize(300), WithReplacement(100)])
@pytest.mark.parametrize("epsilon", [0.0, 0.02, 0.3])
def test_mixtures_of_worlds_are_enclosed(sampler, epsilon):
    """No world with groups of both vertices has a larger mean than the upper end."""
    mechanism, n, vertices = Decision(Plurality("listed"), sampler), 500, [[0.45, 0.55], [0.6, 0.4]]
    delta = smoothed_delta(mechanism, Vertices(vertices), n, epsilon)
    means = [
        smoothed_delta(
            mechanism, Heterogeneous([(n - j, vertices[0]), (j, vertices[1])]), n, epsilon
        )
        for j in range(0, n + 1, 20)
    ]
    assert max(mean.log_lower for mean in means) <= delta.log_upper + 1e-9
    assert max(mean.log_upper for mean in means) >= delta.log_lower - 0.02
    assert delta.log_upper - delta.log_lower < math.log(2)
    if sampler is None:
        assert delta.method == "exact"


def test_more_types_are_bounded_by_their_counts():
    population = Vertices([[0.3, 0.3, 0.4]])
    delta = smoothed_delta(Decision(Plurality(), FixedSize(100)), population, 300, 0.5)
    counts = smoothed_delta(Histogram(FixedSize(100)), population, 300, 0.5)
    assert (delta.method, delta.log_upper) == ("bound", counts.log_upper)
    assert "upper bound for every rule" in delta.note
    sampled = smoothed_delta(Decision(Plurality(), FixedSize(10)), population, 80, 0.5, draws=3)
    assert sampled.method == "monte carlo"
    assert sampled.upper < 0.125


@pytest.mark.parametrize("sampler", [FixedSize(0), WithReplacement(0), Poisson(0.0)])
@pytest.mark.parametrize("counts", [(3, 0), (2, 1), (1, 1, 1)])
def test_empty_samples_reveal_nothing(sampler, counts):
    for name, (rule, _) in RULES.items():
        assert database_delta(Decision(rule, sampler), counts, 0.0).upper < 1e-11, name


def test_quantiles_of_a_decision():
    mechanism = Decision(Plurality())
    (delta,) = quantiles(mechanism, Vertices([[0.5, 0.5]]), 1000, 0.5, [0.5])
    mean = smoothed_delta(mechanism, Vertices([[0.5, 0.5]]), 1000, 0.5)
    assert delta.upper == pytest.approx(mean.upper)  # delta is 0 or 1


def test_shares_are_read_as_decimal_numbers():
    assert Threshold(share=0.07)((7, 93))
    assert not Threshold(share=0.07, strict=True)((7, 93))
    assert Threshold(share=Fraction(2, 3))((2, 1))


ROWS = [{"counts": [o, 2 - o], "outcome": "yes" if o else "no"} for o in range(3)]
REFUSED = {
    "rule": lambda: Decision("plurality"),
    "sampler": lambda: Decision(Plurality(), 5),
    "ties": lambda: Plurality("coin"),
    "both": lambda: Threshold(share=0.5, count=3),
    "neither": Threshold,
    "share": lambda: Threshold(share=1.5),
    "index": lambda: database_delta(Decision(Threshold(count=1, type_index=2)), [2, 1], 1.0),
    "rows": lambda: ListedRule([{"counts": [1, 1]}]),
    "repeated row": lambda: ListedRule([ROWS[0], ROWS[0]]),
    "outcome": lambda: ListedRule([{"counts": [1, 1], "outcome": ["a"]}]),
    "missing row": lambda: database_delta(
        Decision(ListedRule(ROWS[1:]), FixedSize(2)), [2, 3], 1.0
    ),
    "list": lambda: database_delta(Decision(list, FixedSize(2)), [2, 3], 1.0),
    "no probability": lambda: database_delta(Decision(lambda _: {0: 0.5}), [2, 3], 1.0),
    "T > n": lambda: smoothed_delta(
        Decision(Plurality(), FixedSize(6)), Vertices([[0.5, 0.5]]), 5, 1.0
    ),
    "too many samples": lambda: database_delta(
        Decision(Plurality(), Poisson(0.5)), [2000, 2000], 1.0
    ),
    "rule kind": lambda: build_from_spec("rule", {"kind": "borda"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(InvalidInput) as caught:
        REFUSED[name]()
    assert "2000" not in str(caught.value)


@pytest.mark.parametrize("n_epsilons", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_an_audit_of_the_winner(tmp_path, n_epsilons):
    """The short form computes the first column of the page only, epsilon 0."""
    spec = json.loads((EXAMPLES / "winner.json").read_text())
    path = tmp_path / "winner.json"
    path.write_text(json.dumps({**spec, "epsilons": spec["epsilons"][:n_epsilons]}))
    report = json.loads(run("smoothed", "audit", path, "--json"))
    for row in report["rows"]:
        assert row["smoothed"]["log10_upper"] <= row["worst_case"]["log10_upper"] + 1e-9
        assert row["smoothed"]["log10_upper"] <= row["counts"]["log10_upper"] + 1e-9
    assert report["rows"][0]["smoothed"]["upper"] == pytest.approx(1.161e-3, rel=1e-3)
    assert "a bound for every rule on them" in format_audit(report)
    page = (EXAMPLES.parents[1] / "docs" / "explanation" / "smoothed.md").read_text()
    for line, name in (
        ("winner, smoothed delta", "smoothed"),
        ("winner, worst database", "worst_case"),
        ("all counts published, smoothed delta", "counts"),
    ):
        cells = page.partition(f"| {line} |")[2].partition("\n")[0].split("|")[:n_epsilons]
        uppers = [row[name]["upper"] for row in report["rows"]]
        assert [float(cell) for cell in cells] == pytest.approx(uppers, rel=0.05)


def test_audits_of_listed_rules_and_thresholds():
    spec = {"population": {"kind": "vertices", "rows": [[0.5, 0.5]]}, "n": 6, "epsilons": [0.1]}
    sampler = {"kind": "fixed_size", "size": 2}
    listed = {"kind": "decision", "rule": {"kind": "listed", "rows": ROWS}, "sampler": sampler}
    threshold = {**listed, "rule": {"kind": "threshold", "count": 1}}
    results = [
        audit_smoothed_dp({**spec, "mechanism": mechanism})["rows"]
        for mechanism in (listed, threshold)
    ]
    assert results[0] == results[1]
    all_records = audit_smoothed_dp(
        {**spec, "mechanism": {"kind": "decision", "rule": threshold["rule"]}}
    )
    assert all_records["rows"][0]["worst_case"]["upper"] == 1


TINY = {
    "mechanism": {"kind": "histogram", "sampler": {"kind": "fixed_size", "size": 1000}},
    "population": {"kind": "vertices", "rows": [[0.3, 0.3, 0.4]]},
    "n": 10_000,
    "epsilons": [1],
}


def test_tiny_deltas_are_practically_0_and_need_no_sums(monkeypatch):
    def fail(*_):
        raise AssertionError("The theorems are sharper than any sum here.")

    monkeypatch.setattr("vicinal.smoothed.smooth.bound_multitype_mean", fail)
    report = audit_smoothed_dp(TINY)
    assert report["rows"][0]["smoothed"]["log10_upper"] == pytest.approx(-809.06, abs=0.01)
    assert "practically 0 (below 1e-809)" in format_audit(report)


def test_audits_announce_their_progress():
    begun = {}

    def begin(name, size):
        begun[name] = [size, 0]

        def step(n_steps):
            begun[name][1] += n_steps

        return step

    spec = {**TINY, "population": {"kind": "vertices", "rows": [[0.02, 0.02, 0.96]]}, "n": 2000}
    with show_progress(begin):
        audit_smoothed_dp(spec)
        election = json.loads((EXAMPLES / "winner.json").read_text())
        election["mechanism"]["sampler"]["size"] = 1990
        audit_smoothed_dp({**election, "n": 2000})
    assert {"epsilons", "sums to depth 20", "deltas of all databases"} <= set(begun)
    assert all(n_steps == size for size, n_steps in begun.values())
