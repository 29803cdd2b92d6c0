"""Plans before there are records: what is chosen, played through, and told by `vicinal plan`."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from command_line import invoked, printed, shown
from made_up import plan_of
from vicinal import IndKNNClassifier
from vicinal.engine.noise_schedule import HEADROOM
from vicinal.errors import InvalidInput
from vicinal.neighbours import Cosine, Reference
from vicinal.planning.plan_simulation import PlanChoice, SimulationSetup, simulate

CLASSES, D, N = 3, 8, 6000
PLAN = plan_of(CLASSES, n_records=N, n_queries=800, epsilon=1.0)


def make_clusters(seed, size):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, size)
    return (2 * np.eye(CLASSES, D)[y] + rng.normal(size=(size, D))).astype(np.float32), y


PUBLIC, PUBLIC_LABELS = make_clusters(99, 1000)
KERNEL = Cosine.fit_to_public(PUBLIC)
POINTS = KERNEL.encode(PUBLIC)


@pytest.fixture(scope="module")
def setup():
    return SimulationSetup(Reference(KERNEL, POINTS), PUBLIC_LABELS, np.arange(1000), CLASSES)


@pytest.mark.parametrize("n_neighbors", ["auto", 120])
@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_choice_is_what_the_classifier_chooses(release, n_neighbors):
    X, y = make_clusters(0, 500)
    classifier = IndKNNClassifier(
        range(CLASSES), 1.0, 1e-5, 800, n_records=N, n_neighbors=n_neighbors,
        release=release, model_share=0, simulation_seed=0,
    ).fit(X, y, public=PUBLIC)  # fmt: skip
    run_plan = PLAN.replanned(release=release, n_neighbors=n_neighbors)
    choice = PlanChoice.from_plan(run_plan, Reference(KERNEL, POINTS))
    assert choice.n_neighbors == classifier.n_neighbors_
    assert choice.multiplier == pytest.approx(classifier.noise_multiplier_, rel=1e-9)


def test_a_busy_record_lasts_as_long_as_planned():
    choice = PlanChoice.from_plan(PLAN, Reference(KERNEL, POINTS))
    assert choice.queries_until_spent == pytest.approx(HEADROOM * PLAN.n_queries, rel=0.01)
    assert choice.n_participations == pytest.approx(800 * choice.n_neighbors / N)


def test_without_points_the_noise_is_the_most_that_weights_can_ask_for():
    assert (
        PlanChoice.from_plan(PLAN).multiplier
        > PlanChoice.from_plan(PLAN, Reference(KERNEL, POINTS)).multiplier
    )
    assert PlanChoice.from_plan(PLAN).usage.mean_squared_weight == 1.0


@pytest.mark.parametrize(
    ("name", "value"), [("n_records", 0), ("n_queries", 0), ("epsilon", 0.0), ("delta", 1.0)]
)
def test_a_value_just_outside_the_range_of_a_parameter_is_refused_by_name(name, value):
    """The cases of test_parameters.py follow the declared ranges, which could be wrong."""
    with pytest.raises(InvalidInput, match=f"'{name}'"):
        PLAN.replanned(**{name: value})


def test_without_noise_every_answer_is_unchanged(setup):
    choice = PlanChoice.from_plan(PLAN, setup.reference)
    quiet = replace(choice, multiplier=1e-6, budget=1e30)
    outlook = simulate(setup, quiet)
    assert outlook.agreement == outlook.at_end == 1.0
    assert outlook.accuracy == outlook.plain_accuracy
    assert outlook.used == pytest.approx(0.0, abs=1e-9)


def test_too_little_noise_wears_budgets_out_and_too_much_drowns_votes(setup):
    choice = PlanChoice.from_plan(PLAN.replanned(epsilon=0.3), setup.reference)
    planned = simulate(setup, choice)
    worn = simulate(setup, replace(choice, multiplier=choice.multiplier / 4))
    drowned = simulate(setup, replace(choice, multiplier=choice.multiplier * 12))
    assert worn.retired > 0.5 > planned.retired
    assert worn.at_end < planned.at_end - 0.1
    assert drowned.agreement < planned.agreement - 0.1
    assert drowned.used < planned.used < worn.used


@pytest.mark.parametrize("epsilon", [0.1, pytest.param(0.3, marks=pytest.mark.soak), 2.0])
def test_an_outlook_foretells_what_the_classifier_does(setup, epsilon):
    """At a budget so small that noise and usage cost many points, and at one where they do not.

    The short form leaves out the epsilon between.
    """
    X, y = make_clusters(0, N)
    queries, truth = make_clusters(3, 800)
    plan_at = PLAN.replanned(epsilon=epsilon)
    outlook = simulate(setup, PlanChoice.from_plan(plan_at, setup.reference))
    classifier = IndKNNClassifier(
        range(CLASSES), epsilon, 1e-5, 800, n_records=N, model_share=0, simulation_seed=0
    ).fit(X, y, public=PUBLIC)
    right = (classifier.predict(queries) == truth).mean()
    assert outlook.accuracy == pytest.approx(right, abs=0.06)
    left = classifier._shard.ledger.remaining / 2**48
    assert outlook.used == pytest.approx(1 - left.mean(), abs=0.1)


def make_people(seed, people, each=6):
    """Return nearly equal rows of each person, with a class that only the person determines."""
    rng = np.random.default_rng(seed)
    points = np.repeat(rng.normal(size=(people, D)), each, axis=0)
    points += 0.05 * rng.normal(size=points.shape)
    return points, np.repeat(rng.integers(0, 2, people), each), np.repeat(np.arange(people), each)


@pytest.fixture(scope="module")
def people_file(tmp_path_factory):
    """Public rows with ids; one row has no label, and another no id."""
    points, labels, subjects = make_people(0, 60)
    names = [("no", "yes")[label] for label in labels]
    names[3] = None
    ids = [f"E-{subject:03d}" for subject in subjects]
    ids[11] = None
    columns = {f"x{i}": points[:, i] for i in range(D)} | {"y": names, "who": ids}
    path = tmp_path_factory.mktemp("people") / "public.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("model_share", [0, 0.7])
def test_rows_of_one_subject_do_not_vote_for_each_other(people_file, model_share):
    """The classes are independent of all but the person, so nobody can predict them."""
    command = ["plan", "--records", 600, "--queries", 100, "--classes", "no,yes", "--epsilon", 50]
    command += ["--public", people_file, "--label", "y", "--model-share", model_share]
    command += ["--records-per-subject", 6]
    columns = ["--columns", ",".join(f"x{i}" for i in range(D))]
    by_row = shown(*command, *columns)
    assert "several rows of one person" in by_row
    simulated = json.loads(printed(*command, "--subject", "who", "--json"))["plan"]["outlook"]
    assert simulated["subjects"] == 60
    assert simulated["accuracy"] < 0.65
    assert simulated["plain_accuracy"] < 0.65
    if not model_share:
        too_high = json.loads(printed(*command, *columns, "--json"))["plan"]["outlook"]
        assert too_high["plain_accuracy"] > simulated["plain_accuracy"] + 0.1
        assert too_high["subjects"] == 359


def test_public_rows_without_a_label_or_an_id_are_left_out_of_the_simulation(people_file):
    command = ["plan", "--records", 600, "--queries", 100, "--classes", "no,yes"]
    command += ["--public", people_file, "--label", "y", "--subject", "who"]
    report = shown(*command)
    assert "Simulations and comparisons leave out 2 public rows without label or id." in report
    assert "the public rows have about 6 rows per subject" in report
    assert "only 60 public subjects have labels" in report


def test_an_interval_is_that_of_one_answer_for_each_subject():
    def measure(subjects):
        setup = SimulationSetup(Reference(KERNEL, POINTS), PUBLIC_LABELS, subjects, CLASSES)
        result = simulate(setup, PlanChoice.from_plan(PLAN, setup.reference))
        return result.compute_standard_error(0.5)

    assert measure(np.arange(1000)) == pytest.approx(0.5 / np.sqrt(800))
    assert measure(np.arange(1000) // 10) == pytest.approx(0.5 / np.sqrt(100))


def test_more_answers_than_points_wear_as_much_as_they_would(setup):
    """Each simulated answer stands for several."""
    plan_at = PLAN.replanned(n_queries=800)
    choice = PlanChoice.from_plan(plan_at, setup.reference)
    few = SimulationSetup(
        Reference(KERNEL, POINTS[:400]), PUBLIC_LABELS[:400], np.arange(400), CLASSES
    )
    thinned = simulate(few, PlanChoice.from_plan(plan_at, few.reference))
    assert thinned.answers == 400
    assert thinned.used == pytest.approx(simulate(setup, choice).used, abs=0.05)


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "public.npz"
    np.savez(path, x=PUBLIC, y=PUBLIC_LABELS)
    return path


run_plan = partial(invoked, "plan", "--records", N, "--queries", 400, "--classes", CLASSES)


def test_the_plan_is_told_with_reasons_and_alternatives_and_as_json(public, monkeypatch):
    monkeypatch.setattr("vicinal.reports.plan_report._MIN_SIMULATED_ANSWERS", 400)
    asked = "--public", public, "--label", "y", "--model-share", 0
    text = run_plan(*asked).stdout
    for word in ("neighbours", "noise", "release", "budgets", "accuracy", "twice the epsilon"):
        assert word in text
    outlook = json.loads(run_plan(*asked, "--json").stdout)
    assert 0 < outlook["plan"]["outlook"]["agreement"] <= 1
    names = [option["name"] for option in outlook["alternatives"]]
    assert {"label alone", "half the queries"} <= set(names)


def test_a_plan_says_by_default_which_model_there_is_or_why_none(public):
    words = " ".join(run_plan("--public", public).stdout.split())
    assert "enough records. A private model needs" in words
    assert "the public rows have no labels (--label)" in words
    words = " ".join(run_plan("--public", public, "--kernel", "rbf").stdout.split())
    assert "model no private model, because it needs kernel='cosine'" in words


def test_without_public_points_nothing_is_simulated():
    words = " ".join(run_plan().stdout.split())
    assert "A private model needs" in words
    assert "because there are no public rows" in words
    assert json.loads(run_plan("--json").stdout)["plan"]["outlook"] is None


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--epsilon", "nan"], "epsilon"),
        (["--release", "all"], "release"),
        (["--public", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_bad_usage_is_one_line(options, match):
    refused = run_plan(*options, code=2)
    assert refused.stdout == ""
    assert match in refused.stderr
    assert refused.stderr.count("\n") == 1
