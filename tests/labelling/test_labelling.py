"""Labelling rounds: plans, selected answers, the journal; only released values decide."""

import os
import shutil
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from labelling import jobs
from labelling.jobs import Raw, silent
from made_up import Cut, components_for_few, cut_after_first_block
from vicinal import labelling
from vicinal.errors import InvalidInput, PrivacyRefused, StorageFailed
from vicinal.features import PublicMap
from vicinal.labelling import (
    FileJournal,
    IndKNNLabeller,
    Labeller,
    LabellingPlan,
    LabellingTask,
    ReleasedLabels,
    Round,
    default_plan,
    load_answers,
)
from vicinal.labelling.answers import save_answers
from vicinal.labelling.journal import JournalEntry, RoundAnswers
from vicinal.labelling.labellers import Answers
from vicinal.ledger import files
from vicinal.ledger.rollback_guard import WitnessState

C = 3


class Centres:
    """A student that knows the mean of every class."""

    def __init__(self, means):
        self.means = means

    def transform(self, examples):
        return examples @ self.means.T

    def predict_proba(self, examples):
        scores = np.exp(examples @ self.means.T)
        return scores / scores.sum(axis=1, keepdims=True)


class Learner:
    """Keeps the rows and labels that each student is trained on."""

    def __init__(self):
        self.lessons = []

    def learn(self, examples, rows, labels, *_):
        self.lessons.append((rows, labels))
        means = [examples[rows[labels == label]].mean(axis=0) for label in range(C)]
        return Centres(np.array(means))

    def save(self, student, path, guarantee):
        assert guarantee.epsilon == 2.0
        with path.open("wb") as file:
            np.save(file, student.means)

    def load(self, path):
        return Centres(np.load(path))


def make_labeller(world, **options):
    return IndKNNLabeller(range(C), world[1], **{"epsilon": 2.0, **options})


def rounds(queries=300, **second):
    first = Round(300, 0.4, 0.7, components=None)
    return LabellingPlan((first, Round(queries, 0.6, components=None, **second)))


def run(world, folder, plan=None, labeller=None, learner=None, task=None):
    task = task or LabellingTask(world[0], world[2], Raw())
    arguments = (labeller or make_labeller(world), learner or Learner(), plan or rounds())
    with FileJournal(folder) as journal:
        return labelling.run_labelling(task, *arguments, journal, silent)


ONE_ROUND = LabellingPlan((Round(300, 1.0, 1.0, components=None),))
labelled = partial(jobs.labelled, plan=ONE_ROUND)


@pytest.fixture(scope="module")
def finished(world, tmp_path_factory):
    """The folder, the outcome and the labeller of a run of two rounds."""
    folder, labeller = tmp_path_factory.mktemp("run"), make_labeller(world)
    return folder, run(world, folder, labeller=labeller), labeller


def test_two_rounds_answer_well_and_share_one_budget_and_guarantee(world, finished):
    _, outcome, labeller = finished
    truth = world[3]
    assert outcome.guarantee.epsilon == 2.0
    assert len(outcome.students) == len(outcome.rounds) == 2
    for answers, selected in zip(outcome.rounds, outcome.selected, strict=True):
        right = answers.labels == truth[answers.queries]
        assert right[selected].mean() > 0.9
        assert right[selected].mean() > right.mean() - 0.02
    predicted = outcome.student.predict_proba(world[2]).argmax(axis=1)
    assert (predicted == truth).mean() > 0.9
    state = labeller.state()
    assert (state["remaining"] >= 0).all()
    assert (state["remaining"] < 2**48).all()
    assert int(state["answers"]) == 600


def test_later_rounds_ask_about_other_examples_first(finished):
    first, second = finished[1].rounds
    assert len(set(first.queries) | set(second.queries)) == 600


def test_unsure_rounds_ask_where_the_student_is_least_sure(world, tmp_path):
    outcome = run(world, tmp_path, rounds(choose="unsure", queries=100))
    sureness = outcome.students[0].predict_proba(world[2]).max(axis=1)
    is_queried = np.zeros(700, dtype=bool)
    is_queried[outcome.rounds[1].queries] = True
    assert sureness[is_queried].max() <= sureness[~is_queried].min()


def test_labels_alone_keep_all_answers(world, tmp_path):
    outcome = run(world, tmp_path, labeller=make_labeller(world, release="label"))
    assert [answers.margins for answers in outcome.rounds] == [None, None]
    assert [len(selected) for selected in outcome.selected] == [300, 300]


def test_kept_answers_are_those_with_the_largest_margins_of_all_or_of_each_class():
    margins = np.array([0.5, 3.0, -1.0, 2.0, 3.0, 0.1])
    labels = np.zeros(6, dtype=np.int64)
    for keep, selected in ((0.5, [1, 3, 4]), (0.01, [1]), (1.0, list(range(6)))):
        assert Round(6, 1.0, keep=keep).select_answers(margins, labels).tolist() == selected
    labels = np.array([0, 1, 0, 1, 1, 2])
    part = Round(6, 1.0, keep=0.5, by_class=True)
    assert part.select_answers(margins, labels).tolist() == [0, 1, 4, 5]
    assert part.select_answers(margins[:0], labels[:0]).tolist() == []


@Labeller.register
class Scripted:
    """Answers from a script, as if votes had come out so; private records are ignored."""

    classes = np.arange(C)

    def begin_round(self, _records, _reference, part):
        self.generator = np.random.default_rng([part.queries, round(100 * part.share)])

    def label(self, queries):
        size = len(queries)
        return Answers(self.generator.integers(C, size=size), self.generator.exponential(size=size))

    def state(self):
        return {}

    def guarantee(self):
        return IndKNNLabeller(range(C), [0], epsilon=2.0).guarantee()

    def digest(self):
        return ""


def run_scripted(world, folder, records):
    """Return the outcome, and the rows and labels that each student learns."""
    learner = Learner()
    task = LabellingTask(records, world[2], Raw())
    outcome = run(world, folder, rounds(choose="unsure"), Scripted(), learner, task)
    return outcome, learner.lessons


def test_a_student_learns_from_kept_answers_and_later_ones_win(world, tmp_path):
    outcome, lessons = run_scripted(world, tmp_path, world[0])
    first, second = (
        dict(zip(answers.queries[selected], answers.labels[selected], strict=True))
        for answers, selected in zip(outcome.rounds, outcome.selected, strict=True)
    )
    assert any(second[row] != first[row] for row in first.keys() & second.keys())
    learnt = [dict(zip(rows, labels, strict=True)) for rows, labels in lessons]
    assert learnt == [first, first | second]


def test_what_is_asked_and_kept_depends_on_released_things_only(world, tmp_path):
    """Other private records, the same answers: the same queries, lessons and students."""
    _, lessons = run_scripted(world, tmp_path / "one", world[0])
    _, others = run_scripted(world, tmp_path / "two", -world[0][:50])
    for lesson, other in zip(lessons, others, strict=True):
        np.testing.assert_array_equal(lesson, other)


def test_a_finished_run_is_read_and_not_asked_again(world, finished):
    folder, first, _ = finished
    labeller, learner = make_labeller(world), Learner()
    labeller.label = learner.learn = None
    again = run(world, folder, labeller=labeller, learner=learner)
    np.testing.assert_array_equal(first.rounds[1].labels, again.rounds[1].labels)
    assert first.guarantee == again.guarantee


@pytest.mark.parametrize("change", ["records", "labels", "epsilon", "plan", "pool"])
def test_another_run_may_not_go_on_in_the_folder(world, finished, change):
    records, labels, pool, _ = world
    if change == "records":
        records = records + 1e-9
    elif change == "labels":
        labels = np.roll(labels, 1)
    elif change == "pool":
        pool = pool[::-1]
    labeller = IndKNNLabeller(range(C), labels, epsilon=1.0 if change == "epsilon" else 2.0)
    plan = rounds(keep=0.5) if change == "plan" else rounds()
    with pytest.raises(InvalidInput, match="another run"):
        run(world, finished[0], plan, labeller, task=LabellingTask(records, pool, Raw()))


def test_the_journal_returns_what_it_was_given(tmp_path):
    answers = RoundAnswers(np.array([3, 1, 2]), np.array([0, 1]), np.array([0.5, -1.0]))
    bare = RoundAnswers(np.array([4]), np.array([], dtype=np.int64), None)
    entry = JournalEntry(
        "run", (answers, bare), {"remaining": np.arange(4), "slack": np.array(1e-9)}
    )
    with FileJournal(tmp_path / "new" / "folder") as journal:
        assert journal.read() is None
        journal.commit(entry)
        read = journal.read()
    assert read.input_digest == "run"
    np.testing.assert_array_equal(read.rounds[0].queries, [3, 1, 2])
    np.testing.assert_array_equal(read.rounds[0].margins, [0.5, -1.0])
    assert read.rounds[1].margins is None
    assert not read.rounds[0].complete
    np.testing.assert_array_equal(read.state["remaining"], np.arange(4))
    assert float(read.state["slack"]) == 1e-9


def entry(size):
    return JournalEntry("run", (), {"remaining": np.arange(size)})


def committed(folder, *sizes):
    """Commit entries one after the other."""
    with FileJournal(folder) as journal:
        journal.read()
        for size in sizes:
            journal.commit(entry(size))


def assert_refused(folder, message, error=PrivacyRefused):
    with FileJournal(folder) as journal, pytest.raises(error, match=message):
        journal.read()


def test_the_journal_is_for_its_owner_only_and_a_damaged_one_is_not_taken_for_none(tmp_path):
    committed(tmp_path, 4)
    path = tmp_path / "journal.npz"
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:-40])
    assert_refused(tmp_path, "It holds what was paid for", InvalidInput)


@pytest.mark.parametrize(
    ("lost", "message"), [("journal.npz", "is gone"), ("../run.witness", "its witness")]
)
def test_a_journal_and_its_witness_go_together(tmp_path, lost, message):
    folder = tmp_path / "run"
    committed(folder, 4)
    (folder / lost).unlink()
    assert_refused(folder, message)


@pytest.mark.parametrize("begun", [0, 1, 3])
def test_a_journal_that_ran_elsewhere_is_not_swapped_back(tmp_path, begun):
    """Fails if a copy that went further, with a witness of its own, is taken for what ran here."""
    here, there = tmp_path / "here", tmp_path / "there"
    committed(here / "run", 1)
    if not begun:  # as a kill after the first entry leaves it
        witness = here / "run.witness"
        witness.write_bytes(replace(WitnessState.read(witness), clock=0).encode_header())
    committed(here / "run", *range(1, begun))
    shutil.copytree(here, there)
    committed(here / "run", *[7] * bool(begun))
    committed(there / "run", 7, 8, 9)
    shutil.copy(there / "run" / "journal.npz", here / "run" / "journal.npz")
    assert_refused(here / "run", "elsewhere")


def test_the_witness_of_another_run_is_refused(tmp_path):
    for name in ("one", "two"):
        committed(tmp_path / name, 4)
    (tmp_path / "two.witness").replace(tmp_path / "one.witness")
    assert_refused(tmp_path / "one", "another", StorageFailed)


@pytest.mark.parametrize("count", range(1, 9))
def test_a_run_that_dies_while_committing_goes_on(tmp_path, monkeypatch, count):
    """Between any two flushes: what is found then is the entry before, or the new one."""
    flushes, really = [], os.fsync

    def die(descriptor):
        flushes.append(descriptor)
        if len(flushes) == count:
            raise KeyboardInterrupt
        really(descriptor)

    monkeypatch.setattr(os, "fsync", die)
    with suppress(KeyboardInterrupt):
        committed(tmp_path, 4, 5)
    monkeypatch.undo()
    with FileJournal(tmp_path) as journal:
        found = journal.read()
        assert found is None or len(found.state["remaining"]) in (4, 5)
        journal.commit(entry(6))
    with FileJournal(tmp_path) as journal:
        assert len(journal.read().state["remaining"]) == 6


def test_one_process_holds_a_folder_at_a_time(tmp_path):
    with FileJournal(tmp_path), pytest.raises(PrivacyRefused):
        FileJournal(tmp_path)
    FileJournal(tmp_path).close()


def test_a_run_that_is_refused_leaves_no_files(tmp_path):
    """A folder that existed stays, and so does the lock of a run that has begun."""
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        with FileJournal(tmp_path / name) as journal:
            assert journal.read() is None
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]
    committed(tmp_path / "empty", 4)
    assert {path.name for path in (tmp_path / "empty").iterdir()} == {"lock", "journal.npz"}


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_lock_that_its_holder_has_removed_is_refused(tmp_path, monkeypatch, is_replaced):
    """Fails if a process that opened the file before its removal works beside one with a new."""
    first = FileJournal(tmp_path)
    lock = files.lock_file
    with ExitStack() as successors:

        def close_and_lock(*arguments):
            monkeypatch.undo()
            first.close()
            if is_replaced:
                successors.enter_context(FileJournal(tmp_path))
            lock(*arguments)

        monkeypatch.setattr(files, "lock_file", close_and_lock)
        with pytest.raises(PrivacyRefused, match="Another process"):
            FileJournal(tmp_path)
    FileJournal(tmp_path).close()


@pytest.mark.parametrize(
    "options",
    [
        {"queries": 0, "share": 1.0}, {"queries": 10, "share": 0.0},
        {"queries": 10, "share": np.nan}, {"queries": 10, "share": 1.0, "keep": 0.0},
        {"queries": 10, "share": 1.0, "keep": np.inf},
        {"queries": 10, "share": 1.0, "components": 0},
        {"queries": 10, "share": 1.0, "choose": "best"}, {"queries": True, "share": 1.0},
    ],
)  # fmt: skip
def test_bad_rounds_are_refused(options):
    with pytest.raises(InvalidInput):
        Round(**options)


def test_bad_plans_are_refused():
    half = Round(10, 0.6)
    for parts in ((), (half, half), (Round(10, 0.5, choose="unsure"),)):
        with pytest.raises(InvalidInput):
            LabellingPlan(parts)
    with pytest.raises(InvalidInput, match="at least 10"):
        LabellingPlan((Round(10, 1.0),)).shuffle_examples(9)


def test_the_default_plan_spends_the_whole_budget():
    for number in (1, 2, 3, 5):
        plan = default_plan(number, 5000)
        assert len(plan.rounds) == number
        assert sum(part.share for part in plan.rounds) == pytest.approx(1.0)
        assert all(part.queries == 1500 and not part.by_class for part in plan.rounds)


SOFT_LABELS = np.array([[0.5, 0.5], [0.25, 0.75], [1, 0]], dtype=np.float32)
ANSWERS = ReleasedLabels(
    np.array([5, 2]), np.array(["cat", "dog"]), np.array([1.0, 0.1]), np.array([True, False]),
    ("cat", "dog"), {"epsilon": 1.0, "text": "..."}, SOFT_LABELS,
)  # fmt: skip


@pytest.mark.parametrize("soft", [None, SOFT_LABELS])
def test_answers_come_back_from_their_file(tmp_path, soft):
    save_answers(replace(ANSWERS, soft_labels=soft), tmp_path / "answers.npz")
    read = load_answers(tmp_path / "answers.npz")
    for name in ("rows", "labels", "margins", "selected"):
        np.testing.assert_array_equal(getattr(read, name), getattr(ANSWERS, name))
    np.testing.assert_array_equal(read.soft_labels, soft)
    assert (read.classes, read.guarantee) == (ANSWERS.classes, ANSWERS.guarantee)
    assert (read.examples_digest, read.columns) == ("", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"guarantee": {"epsilon": float("nan")}}, {"guarantee": {"epsilon": float("inf")}},
        {"soft_labels": np.full((3, 2), np.float32(np.nan))},
        {"soft_labels": np.full((3, 2), np.float32(0.7))},
        {"soft_labels": np.full((3, 3), np.float32(1 / 3))},
        {"soft_labels": np.ones(3, np.float32)},
    ],
)  # fmt: skip
def test_damaged_answers_are_refused(tmp_path, changes):
    save_answers(replace(ANSWERS, **changes), tmp_path / "answers.npz")
    with pytest.raises(InvalidInput, match="damaged"):
        load_answers(tmp_path / "answers.npz")


def test_other_files_are_no_answers(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"no")
    for name in ("broken.npz", "missing.npz"):
        with pytest.raises(InvalidInput):
            load_answers(tmp_path / name)


def test_a_disk_that_fails_stops_the_run_before_answers_are_used(world, tmp_path, monkeypatch):
    flushes, really = [], os.fsync

    def full(descriptor):
        flushes.append(descriptor)
        # Witness and entry, file and folder each, the witness again; then those of the block.
        if len(flushes) == 7:
            raise OSError(28, "No space left on device")
        really(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    learner = Learner()
    with pytest.raises(StorageFailed, match="No space left"):
        run(world, tmp_path, learner=learner)
    assert learner.lessons == []
    monkeypatch.undo()
    assert all(answers.complete for answers in run(world, tmp_path, learner=learner).rounds)
    assert not (tmp_path / "journal.npz.new").exists()


# ---------------------------------------------------------------- a private model beside the votes


@pytest.mark.parametrize(
    ("options", "has_model"),
    [({"model_share": 0.5}, True), ({"epsilon": 8.0}, True), ({"model_share": 0}, False)],
    ids=["declared", "by the rule", "none"],
)
def test_a_model_labels_and_is_stated_before_and_after(world, tmp_path, options, has_model):
    labeller = make_labeller(world, n_records=900, **options)
    stated = [str(labeller.guarantee())]
    answers, _ = labelled(world, tmp_path, labeller)
    stated.append(str(labeller.guarantee()))
    assert (answers.labels == world[3][answers.queries]).mean() > 0.9
    assert (answers.soft_labels is not None) == has_model
    for text in stated:
        assert ("stays in the model" in text) == ("model" in text) == has_model


@pytest.mark.parametrize("components", [False, True])
def test_after_a_kill_the_same_model_goes_on_and_is_not_paid_for_twice(
    world, tmp_path, monkeypatch, components
):
    if components:
        components_for_few(monkeypatch)
    killed = make_labeller(world, model_share=0.5, n_records=900)
    cut_after_first_block(killed, monkeypatch)
    with pytest.raises(Cut):
        labelled(world, tmp_path, killed)
    before = killed.state()
    heir = make_labeller(world, model_share=0.5, n_records=900)
    heir.restore(before)
    public_map = PublicMap(n_components=None).fit(world[2])
    heir.begin_round(*map(public_map.transform, (world[0], world[2])), ONE_ROUND.rounds[0])
    after = heir.state()
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    assert before["model_put"] > 0
    assert ("model_projection" in before) == components
    answers, _ = labelled(world, tmp_path, make_labeller(world, model_share=0.5, n_records=900))
    assert (answers.labels == world[3][answers.queries]).mean() > 0.9


def test_rounds_with_other_features_have_no_model_and_say_why(world, tmp_path):
    labeller = make_labeller(world, model_share=0.5, n_records=900)
    run(world, tmp_path, labeller=labeller)
    assert "model_share" not in labeller.state()
    assert "model" not in str(labeller.guarantee())
    labeller = make_labeller(world, n_records=900)
    run(world, tmp_path / "other", labeller=labeller)
    assert "no private model was trained, as features change" in str(labeller.guarantee())


WRONG_TYPES = {"task": "records", "labeller": "ind-knn", "plan": None, "journal": "run"}


@pytest.mark.parametrize("name", [*WRONG_TYPES, "begin_progress"])
def test_wrong_types_are_refused_by_name_and_before_a_charge(world, tmp_path, name):
    task = LabellingTask(world[0], world[2], Raw())
    arguments = {"task": task, "labeller": make_labeller(world), "plan": ONE_ROUND}
    with FileJournal(tmp_path / "run") as journal:
        arguments |= {"journal": journal, "begin_progress": silent, name: WRONG_TYPES.get(name)}
        with pytest.raises(InvalidInput, match=f"The '{name}' parameter must be"):
            labelling.label(**arguments)
        assert journal.read() is None


def test_unusable_classes_and_extractors_are_refused(world):
    with pytest.raises(InvalidInput, match="The 'classes' parameter must be"):
        IndKNNLabeller(None, world[1])
    with pytest.raises(InvalidInput, match="The 'extractor' parameter must have a method"):
        LabellingTask(world[0], world[2], "table")
