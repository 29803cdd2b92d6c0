"""`vicinal label`, `student`, `transfer` and `table1-mnist`, as their users call them."""

import errno
import json
import os

import numpy as np
import pytest

import vision_tools
from command_line import printed as run
from experiments.__main__ import app as experiments
from made_up import raising, shorten_second_training
from vicinal.cli._reference import PublicLabels
from vicinal.cli.labelling import _evaluate_student
from vicinal.labelling import load_answers

QUESTIONS = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    images, labels = vision_tools.digits()
    vectors = (images[:, ::2, ::2] / 15).reshape(len(images), -1)
    for name, x in (("images", images), ("vectors", vectors)):
        np.savez(folder / f"{name}-private.npz", x=x[:1300], y=labels[:1300])
        np.savez(folder / f"{name}-public.npz", x=x[1300:])
        np.savez(folder / f"{name}-known.npz", x=x[1300:], y=labels[1300:])
    return folder


def data(files, kind):
    private, public = files / f"{kind}-private.npz", files / f"{kind}-public.npz"
    return {"private": private, "public": public, "classes": "0-9"}


def test_answers_and_student_are_compared_with_public_labels_by_class(files, tmp_path, monkeypatch):
    """Fails if a report shows accuracy alone, or learns from the labels that it compares with."""
    pytest.importorskip("torch", reason="students need the extra 'students'")
    shorten_second_training(monkeypatch)
    answers, known = tmp_path / "answers.npz", files / "vectors-known.npz"
    given = {**data(files, "vectors"), "public": known, "out": answers, "queries": QUESTIONS}
    task = {**given, "folder": tmp_path / "run", "epsilon": 4}
    text = run("label", **task)
    assert "Answers by class: 0 " in text
    assert "Accuracy 0." in text
    assert "Right by class: 0 " in text
    assert answers.stat().st_mode == known.stat().st_mode, "answers are public"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", raising(OSError(errno.ENOSPC, "No space left on device")))
        message = " ".join(run("label", **task, code=2).split())
    assert message.endswith(
        "answers.npz cannot be written: No space left on device. A repeated command resumes from "
        "its folder and charges nothing again."
    )
    first = load_answers(answers)
    told = json.loads(run("label", "--json", **task))
    np.testing.assert_array_equal(first.margins, load_answers(answers).margins, "nobody was asked")
    assert "another run" in run("label", **{**task, "epsilon": 3}, code=2)
    assert (told["queries"], told["kept"]) == (QUESTIONS, QUESTIONS * 3 // 4)
    assert (told["guarantee"]["epsilon"], told["guarantee"]["holds"]) == (4.0, True)
    assert (vision_tools.digits()[1][1300:][first.rows] == first.labels).mean() > 0.6
    student = {"out": tmp_path / "s.pt"}
    told = json.loads(run("student", answers, "--json", public=known, **student))
    assert set(told["agreement"]) == {"matches", "answers"}, "it is no accuracy of new examples"
    figures = told["figures"]
    assert figures["total"] == 497 - QUESTIONS
    assert figures["accuracy"] > 0.5
    assert sum(one["total"] for one in figures["by_class"].values()) == figures["total"]
    pytest.importorskip("onnx", reason="writing ONNX needs the extra 'students'")
    student |= {"public": files / "vectors-public.npz", "onnx": tmp_path / "s.onnx"}
    alone = json.loads(run("student", answers, "--json", **student))
    assert (tmp_path / "s.onnx").stat().st_size > 1000
    from vicinal import students

    assert students.load(tmp_path / "s.pt").guarantee["epsilon"] == 4.0
    assert alone["answers"] == QUESTIONS * 3 // 4
    assert alone["figures"] is None
    assert alone["agreement"] == told["agreement"]
    eight = {**given, "classes": "0-8", "folder": tmp_path / "refused"}
    assert "must hold class names" in run("label", **eight, code=2)
    assert not (tmp_path / "refused").exists()


def test_a_student_of_a_wholly_queried_pool_has_no_accuracy_beside_it():
    """Fails if the command ends with an error after it has written the student."""

    class Untouched:
        classes = (0, 1)

        def predict(self, examples):
            raise AssertionError(f"asked about {len(examples)} examples")

    everything = np.arange(6)
    labels = PublicLabels.from_all_rows(everything % 2)
    figures = _evaluate_student(Untouched(), np.zeros((6, 2)), labels, everything)
    assert figures.format_lines() == ["There are no examples to compare with."]


def test_rounds_on_images_with_a_report(files, tmp_path):
    pytest.importorskip("torch", reason="students need the extra 'students'")
    where = {"folder": tmp_path / "run", "out": tmp_path / "student.pt"}
    told = run("transfer", **data(files, "vectors"), **where, method="uda", code=2)
    assert "cannot be augmented" in told
    images = {**data(files, "images"), "public": files / "images-known.npz"}
    told = json.loads(run("transfer", "--json", **images, **where, epsilon=2, steps=8))
    assert [part["share_of_budget"] for part in told["rounds"]] == [0.3, 0.7]
    assert told["guarantee"]["epsilon"] == 2.0
    first, second, student = (one["total"] for one in told["figures"].values())
    assert (first, second) == (149, 149)
    assert 497 - first - second <= student < 497, "queries of two rounds may be the same"
    from vicinal import students

    assert students.load(tmp_path / "student.pt").guarantee == told["guarantee"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queries": 10_000}, "at least 10000"),
        ({"epsilon": "nan"}, "epsilon"),
        ({"release": "all"}, "release"),
        ({"classes": "0-8"}, "labels of the --classes option"),
        ({"private": "nothing.npz"}, "no file"),
        ({"private": "table.csv"}, "--columns option"),
    ],
)
def test_bad_input_ends_with_a_sentence_and_before_anything_is_spent(
    files, tmp_path, options, said
):
    where = {"folder": tmp_path / "run", "out": tmp_path / "answers.npz"}
    assert said in run("label", **{**data(files, "vectors"), **where, **options}, code=2)
    assert not (tmp_path / "run" / "journal.npz").exists()
    assert not (tmp_path / "answers.npz").exists()


@pytest.mark.parametrize("weak", [{"epsilon": 21}, {"delta": 0.01, "records": 101}])
def test_a_weak_plan_has_to_be_meant(files, tmp_path, weak):
    given = {**data(files, "vectors"), **weak, "folder": tmp_path / "run"}
    given["out"] = tmp_path / "answers.npz"
    assert "set the --yes option" in run("label", "--dry-run", **given, code=3)
    priced = run("label", "--dry-run", "--yes", **given)
    assert "-differential privacy for every subject" in priced
    assert "Queries: " in priced
    # `label` has no such options.
    assert "--class-prior" not in priced
    assert "--cost" not in priced


@pytest.mark.parametrize("keep", [{}, {"rounds": 1, "model_keep": 0.6}])
def test_table1_on_vectors_with_and_without_a_private_model(keep, tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="students need the extra 'students'")
    from experiments.commands import table1_mnist
    from experiments.students import runs

    monkeypatch.setattr(runs, "N_PUBLIC", 120)
    monkeypatch.setattr(table1_mnist, "_STEPS", (40, 40))
    rng = np.random.default_rng(0)
    centres, (y, test) = 4 * rng.normal(size=(10, 12)), rng.integers(0, 10, (2, 1200))
    rows = {f"x_{name}": np.rint(centres[of] + rng.normal(size=(len(of), 12))).astype(np.int8)
            for name, of in (("train", y), ("test", test[:240]))}  # fmt: skip
    facts = {"steps": np.ones(12), "n_components": 8, "power": 0.5}
    np.savez(tmp_path / "made.npz", **rows, **facts, y_train=y, y_test=test[:240])
    given = {"vectors": tmp_path / "made.npz", "out": tmp_path / "out", "runs": 1, "epsilon": 50}
    output = run("table1-mnist", "--json", **given, **keep, program=experiments)
    (found,) = json.loads(output)["runs"]
    assert len(found["rounds"]) == (1 if keep else 2)
    last = found["rounds"][-1]
    assert last["answers_kept"] > 0.5
    assert last["student"] > 0.5
    if keep:
        assert (last["queries"], last["kept"]) == (120, 72)
