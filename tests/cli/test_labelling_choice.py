"""Who answers, on the command line: priced first, resumable, and no option silently ignored."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from command_line import option_words
from command_line import printed as run
from made_up import records_and_pool
from vicinal.accounting import account
from vicinal.cli.labelling import StudentOptions
from vicinal.cli.main import app
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.labelling import load_answers
from vicinal.labelling.plan import find_smallest_noise

QUESTIONS = 300


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    records, labels, pool, truth = records_and_pool()
    np.savez(folder / "private.npz", x=records, y=labels)
    np.savez(folder / "public.npz", x=pool)
    np.save(folder / "public-truth.npy", truth)
    return folder


def command(files, folder, *more, what="label"):
    given = {"private": files / "private.npz", "public": files / "public.npz", "classes": "0-2"}
    given |= {"folder": folder, "out": folder.with_suffix(".out")}
    return [what, *option_words(**given), *more]


KNN = ("--labeller", "private-knn", "--neighbors", 30, "--sampling-rate", 0.3, "--epsilon", 8)
SCREEN = ("--sigma-screen", 3.0, "--threshold", 26)


@pytest.mark.parametrize("options", [KNN, (*KNN, *SCREEN)])
def test_answers_are_right_and_cost_what_the_price_said(files, tmp_path, options):
    asking = command(files, tmp_path / "run", "--queries", QUESTIONS, *options)
    price = json.loads(run(*asking, "--dry-run", "--json"))
    assert not (tmp_path / "run").exists(), "a price asks and writes nothing"
    told = json.loads(run(*asking, "--json"))
    assert told["guarantee"] == price["guarantee"]
    assert account(price["plan"])["epsilon"] == told["guarantee"]["epsilon"]
    bound = dict(zip(options[::2], options[1::2], strict=True))["--epsilon"]
    assert 0.999 * bound <= told["guarantee"]["epsilon"] <= bound, "the least noise is taken"
    answers = load_answers(tmp_path / "run.out")
    assert told["queries"] == QUESTIONS
    assert told["answered"] == len(answers.rows)
    assert ("--threshold" in options) == (told["answered"] < QUESTIONS)
    truth = np.load(files / "public-truth.npy")[answers.rows]
    assert (answers.labels == truth).mean() > 0.8


def test_a_run_goes_on_where_it_stopped(files, tmp_path, monkeypatch):
    from vicinal.labelling import FileJournal

    asking = command(files, tmp_path / "run", "--queries", QUESTIONS, *KNN)
    honest, commits = FileJournal.commit, []

    def dying(self, entry):
        honest(self, entry)
        commits.append(entry)
        if len(commits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(FileJournal, "commit", dying)
    assert CliRunner().invoke(app, [str(part) for part in asking]).exit_code != 0
    monkeypatch.undo()
    done = len(commits[-1].rounds[0].labels)
    assert 0 < done < QUESTIONS
    told = json.loads(run(*asking, "--json"))
    answers = load_answers(tmp_path / "run.out")
    np.testing.assert_array_equal(answers.labels[:done], commits[-1].rounds[0].labels)
    assert told["answered"] == QUESTIONS
    assert "another run" in run(*asking, "--sigma-votes", 50, code=2)


@pytest.mark.slow
def test_the_whole_loop_by_planned_labellers(files, tmp_path):
    pytest.importorskip("torch", reason="students need the extra 'students'")
    asking = command(files, tmp_path / "run", *KNN, "--steps", 20, "--json", what="transfer")
    price = json.loads(run(*asking, "--dry-run"))
    first, second = (release["sigma"] for release in price["plan"]["releases"])
    assert first == pytest.approx(second * np.sqrt(0.7 / 0.3)), "noise follows the shares"
    told = json.loads(run(*asking))
    assert told["guarantee"] == price["guarantee"]
    assert [part["queries"] for part in told["rounds"]] == [210, 210]


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (("--labeller", "oracle"), "labeller", 2),
        (("--sigma-votes", 20), "--sigma-votes is for private-knn only", 2),
        (("--sampling-rate", 0.1), "--sampling-rate is for private-knn only", 2),
        ((*KNN, "--records", 900), "--records is for ind-knn only", 2),
        ((*KNN, "--records-per-subject", 3), "--records-per-subject is for ind-knn only", 2),
        ((*KNN, "--model-share", 0.5), "--model-share is for ind-knn only", 2),
        (("--records-per-subject", 0.5), "The --records-per-subject option must", 2),
        ((*KNN, "--sigma-screen", 3), "needs both", 2),
        ((*KNN, "--sigma-votes", 1), "above --epsilon 8", 3),
        ((*KNN, "--sigma-votes", "nan"), "The --sigma-votes option must be a finite number", 2),
        ((*KNN, "--sigma-screen", 0.1, "--threshold", 20), "screening alone costs more", 3),
    ],
)
def test_refusals_come_before_anything_is_asked(files, tmp_path, options, said, code):
    assert said in run(*command(files, tmp_path / "run", *options), code=code)
    assert not (tmp_path / "run").exists()


def test_the_least_noise_keeps_the_target_from_below():
    for target in (1e-3, 1.0, 500.0):
        found = find_smallest_noise(lambda sigma: 7.0 / sigma, target)
        assert 7.0 / found <= target
        assert 7.0 / found >= 0.9999 * target or found == 0.1
    assert find_smallest_noise(lambda _: 0.5, 1.0) == 0.1
    with pytest.raises(PrivacyRefused):
        find_smallest_noise(lambda _: 2.0, 1.0)
    with pytest.raises(InvalidInput):
        find_smallest_noise(lambda _: 2.0, float("nan"))


def test_several_records_a_subject_are_planned_for(files, tmp_path):
    """Declared, they make answers noisier: budgets must last for all records of a subject."""
    leads = []
    for declared in ((), ("--records-per-subject", 9)):
        folder = tmp_path / f"run{len(leads)}"
        given = option_words(queries=50, records=900, model_share=0)
        run(*command(files, folder, *given, *declared))
        leads.append(load_answers(folder.with_suffix(".out")).margins.mean())
    assert leads[1] < 0.7 * leads[0], "in standard deviations of the noise"


def test_images_get_an_ensemble_where_soft_labels_are_released(tmp_path):
    pytest.importorskip("torch", reason="students need the extra 'students'")
    given = {"out": tmp_path / "s.pt", "method": "uda", "augmentation": "digits"}
    onnx = tmp_path / "s.onnx"

    def recipe(n_dimensions=3, *, soft=True, **options):
        return StudentOptions(**options).build_recipe(n_dimensions, 0, has_soft_labels=soft)

    released, labels_alone = recipe(**given), recipe(**given, soft=False)
    assert (released.network, released.steps, released.ensemble) == ("deep", 1600, True)
    assert (labels_alone.network, labels_alone.steps, labels_alone.ensemble) == (
        "small",
        800,
        False,
    )
    for others in ({"overlapping": True}, {"network": "small"}, {"augmentation": "clothes"}):
        assert recipe(**{**given, **others}).network == "small"
    assert recipe(**given, steps=5).steps == 5
    assert not recipe(**given, onnx=onnx).ensemble
    assert recipe(**given, overlapping=True, soft=False).soft_share == 0.8
    vectors = recipe(2, out=given["out"], onnx=onnx)
    assert (vectors.network, vectors.method, vectors.ensemble) == ("kernel", "plain", True)
    assert not recipe(2, out=given["out"], onnx=onnx, soft=False).ensemble
