"""Soft labels of a private model: charged once, computed from released values, kept in files."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from command_line import printed as run
from labelling import jobs
from made_up import Cut, clouds, cut_after_first_block
from vicinal import IndKNNClassifier
from vicinal.errors import InvalidInput
from vicinal.features import PublicMap
from vicinal.labelling import IndKNNLabeller, LabellingPlan, Round, loop
from vicinal.mechanisms.linear_model import GradientRelease
from vicinal.mechanisms.votes import VoteRelease

C, POOL, ASKED = 3, 700, 300
PLAN = LabellingPlan((Round(ASKED, 1.0, 1.0, components=None),))


def make_labeller(labels, **options):
    return IndKNNLabeller(
        range(C), labels, **{"epsilon": 2.0, **options}, n_records=900, model_share=0.5,
        simulation_seed=1,
    )  # fmt: skip


def labelled(world, folder, labeller, records=None):
    return jobs.labelled(world, folder, labeller, PLAN, records)[0]


def mapped(world):
    """Return records and public examples in the features of the round."""
    public_map = PublicMap(None).fit(world[2])
    return public_map.transform(world[0]), public_map.transform(world[2])


@pytest.fixture(scope="module")
def both(world, tmp_path_factory):
    """A labeller beside a model, and its round."""
    labeller = make_labeller(world[1])
    return labeller, labelled(world, tmp_path_factory.mktemp("run"), labeller)


def test_all_public_examples_have_soft_labels_asked_about_or_not(world, both):
    soft = both[1].soft_labels
    assert soft.shape == (POOL, C)
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)
    others = np.setdiff1d(np.arange(POOL), both[1].queries)
    assert len(others) == POOL - ASKED
    assert (soft[others].argmax(axis=1) == world[3][others]).mean() > 0.9
    assert (soft[both[1].queries].argmax(axis=1) == both[1].labels).mean() > 0.95


def test_labels_alone_that_are_not_the_models_count_as_much_as_the_model(
    world, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "vicinal.linear.losses._TABLE_DIRICHLET_VOTES", 1e-9
    )  # or votes change nothing
    labeller = make_labeller(world[1], release="label", epsilon=0.5)
    answers = labelled(world, tmp_path, labeller)
    model = labeller._classifier.model_probabilities(mapped(world)[1])
    voted = model[answers.queries].argmax(axis=1) != answers.labels
    assert 0 < voted.sum() < ASKED / 4
    expected = model.copy()
    rows = answers.queries[voted]
    expected[rows] /= 2
    expected[rows, answers.labels[voted]] += 0.5
    np.testing.assert_allclose(answers.soft_labels, expected, atol=1e-6)


def test_a_round_that_goes_on_after_a_kill_has_the_soft_labels_of_one_that_did_not(
    world, both, tmp_path, monkeypatch
):
    labeller = make_labeller(world[1])
    blocks = cut_after_first_block(labeller, monkeypatch)
    with pytest.raises(Cut):
        labelled(world, tmp_path, labeller)
    soft = labelled(world, tmp_path, make_labeller(world[1])).soft_labels
    first = both[1].queries[: blocks[0]]
    others = np.setdiff1d(np.arange(POOL), both[1].queries)
    for rows in (first, others):
        np.testing.assert_array_equal(soft[rows], both[1].soft_labels[rows])


def test_they_are_paid_for_with_the_training_and_never_again(world, both):
    """The ledger is that of the same answers without anybody looking at the model."""
    labeller, answers = both
    records, pool = mapped(world)
    classifier = IndKNNClassifier(
        range(C), 2.0, n_queries=ASKED, n_records=900, model_share=0.5, simulation_seed=1
    ).fit(records, world[1], public=pool)
    first = loop.BLOCK
    for block in (answers.queries[:first], answers.queries[first:]):
        classifier.query(pool[block])
    paid = labeller.state()["remaining"]
    np.testing.assert_array_equal(classifier._shard.ledger.remaining, paid)
    for _ in range(3):
        labeller._classifier.model_probabilities(pool)
    np.testing.assert_array_equal(labeller.state()["remaining"], paid)
    assert labeller.state()["answers"] == ASKED


def in_two_worlds(world, folder, monkeypatch):
    """Return soft labels with somebody and without, where all that is released is the same.

    Noisy sums and noisy votes come from one script, as if noise had made them equal.
    """
    found = []
    for name, records, labels in (("in", world[0], world[1]), ("out", world[0][1:], world[1][1:])):
        script = np.random.default_rng(7)
        monkeypatch.setattr(
            GradientRelease, "publish", lambda _self, sums, s=script: 99 * s.normal(size=sums.shape)
        )
        monkeypatch.setattr(
            VoteRelease, "publish", lambda _self, votes, s=script: 20 * s.normal(size=votes.shape)
        )
        found.append(labelled(world, folder / name, make_labeller(labels), records).soft_labels)
    return found


def test_given_the_same_releases_soft_labels_are_the_same_in_two_worlds(
    world, tmp_path, monkeypatch
):
    np.testing.assert_array_equal(*in_two_worlds(world, tmp_path, monkeypatch))


def test_soft_labels_of_weights_without_noise_are_caught(world, tmp_path, monkeypatch):
    honest, sums = GradientRelease.contribute_and_charge, []

    def collect(self, *arguments):
        total, spent = honest(self, *arguments)
        sums.append(total / self.mechanism.steps_per_clip)
        return total, spent

    def without_noise(_self, X):
        scores = np.c_[X, np.ones(len(X))] @ sums[-1][[*range(X.shape[1]), -1]]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)

    monkeypatch.setattr(GradientRelease, "contribute_and_charge", collect)
    monkeypatch.setattr(IndKNNClassifier, "model_probabilities", without_noise)
    first, second = in_two_worlds(world, tmp_path, monkeypatch)
    assert not np.array_equal(first, second)


def test_soft_labels_that_look_at_records_are_caught(world, tmp_path, monkeypatch):
    """A bias by how many there are, as a calibration on private records would be."""
    honest = IndKNNClassifier.model_probabilities

    def calibrated(self, X):
        return honest(self, X) ** (len(self._shard) / 900)

    monkeypatch.setattr(IndKNNClassifier, "model_probabilities", calibrated)
    first, second = in_two_worlds(world, tmp_path, monkeypatch)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("share", ["0.5", "0"])
def test_from_a_private_model_to_a_student_of_its_scores(tmp_path, share, monkeypatch):
    pytest.importorskip("torch", reason="students need the extra 'students'")
    from vicinal import students

    second = students.Recipe("plain", "wide", steps=50, labelled=256, soft_share=1.0)
    monkeypatch.setattr("vicinal.students.learner._SECOND_VECTOR_RECIPE", second)
    X, y = clouds(0, 900, 12)
    pool, truth = clouds(1, 300, 12)
    np.savez(tmp_path / "private.npz", x=X, y=y)
    np.savez(tmp_path / "public.npz", x=pool)
    files = "--private", tmp_path / "private.npz", "--public", tmp_path / "public.npz"
    where = "--folder", tmp_path / "run", "--out", tmp_path / "answers.npz", "--classes", "0-2"
    asking = "--epsilon", 8, "--records", 900, "--queries", 40, "--model-share", share
    run("label", *files, *where, *asking)
    with zipfile.ZipFile(tmp_path / "answers.npz") as stored:
        assert ("soft_labels.npy" in stored.namelist()) == (share != "0")
    # Students are made of what is released: nothing private is there any more.
    (tmp_path / "private.npz").unlink()
    shutil.rmtree(tmp_path / "run")
    command = "student", tmp_path / "answers.npz", *files[2:], "--out", tmp_path / "student.pt"
    steps = () if share != "0" else ("--steps", 20)
    report = json.loads(run(*command, *steps, "--json"))
    student = students.load(tmp_path / "student.pt")
    found = (report["soft_labels"], student.name)
    assert found == ((0, "mlp") if share == "0" else (300, "kernel"))
    assert student.guarantee == report["guarantee"]
    if share != "0":
        assert (student.predict(pool) == truth).mean() > 0.85
        for option in (("--steps", 20), ("--method", "plain")):
            assert "has no effect on the network 'kernel', the" in run(*command, *option, code=2)
        printed = " ".join(run(*command, "--network", "mlp", "--steps", 20).split())
        assert "soft labels in the answers are not used, because of the network mlp" in printed
        assert "answers that it was trained on. This is not its accuracy." in printed
        assert "Accuracy" not in printed
        assert students.load(tmp_path / "student.pt").name == "mlp"


@pytest.mark.parametrize(
    ("n_dimensions", "options", "message"),
    [
        (2, {"network": "kernel", "method": "vat"}, "The --method option has no effect"),
        (2, {"network": "kernel", "steps": 5}, "or use --network mlp"),
        (2, {"augmentation": "digits"}, "has no effect on the network 'mlp', the default"),
        (2, {"network": "wide", "overlapping": True}, "The --overlapping option has no effect"),
        (2, {"network": "small"}, "for vectors must be one of mlp, wide, kernel. Got 'small'"),
        (3, {"network": "kernel"}, "for images must be one of small, deep. Got 'kernel'"),
        (2, {"method": "uda"}, "cannot be augmented"),
        (3, {"overlapping": True}, "needs --method uda"),
    ],
)
def test_options_without_an_effect_on_the_training_are_refused(n_dimensions, options, message):
    """Fails if a student is trained otherwise than its options request, without a word."""
    from vicinal.cli.labelling import StudentOptions

    with pytest.raises(InvalidInput, match=re.escape(message)):
        StudentOptions(Path("student.pt"), **options).build_recipe(n_dimensions, 0)
