"""Labelling rounds: plans, selected answers, the journal; only released values decide."""

import dataclasses
import os
import shutil
from contextlib import ExitStack, suppress
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
    """Keeps what it was told, so that tests can look at it."""

    def __init__(self):
        self.lessons = []

    def learn(self, examples, rows, labels, *_):
        self.lessons.append((rows, labels))
        means = [examples[rows[labels == place]].mean(axis=0) for place in range(C)]
        return Centres(np.array(means))

    def save(self, student, path, guarantee):
        assert guarantee.epsilon == 2.0
        with path.open("wb") as file:
            np.save(file, student.means)

    def load(self, path):
        return Centres(np.load(path))


def labeller(world, **options):
    return IndKNNLabeller(range(C), world[1], **{"epsilon": 2.0, **options})


def rounds(**second):
    first = Round(300, 0.4, 0.7, components=None)
    return LabellingPlan(
        (first, Round(**{"queries": 300, "share": 0.6, "components": None, **second}))
    )


def run(world, folder, plan=None, asker=None, learner=None):
    job = LabellingTask(world[0], world[2], Raw())
    with FileJournal(folder) as journal:
        return labelling.run_labelling(
            job, asker or labeller(world), learner or Learner(), plan or rounds(), journal, silent
        )


ONE_ROUND = LabellingPlan((Round(300, 1.0, 1.0, components=None),))
labelled = partial(jobs.labelled, plan=ONE_ROUND)


def test_two_rounds_answer_well_and_state_one_guarantee(world, tmp_path):
    outcome = run(world, tmp_path)
    truth = world[3]
    assert outcome.guarantee.epsilon == 2.0
    assert len(outcome.students) == len(outcome.rounds) == 2
    for asked, kept in zip(outcome.rounds, outcome.selected, strict=True):
        right = asked.labels == truth[asked.queries]
        assert right[kept].mean() > 0.9
        assert right[kept].mean() > right.mean() - 0.02
    said = outcome.student.predict_proba(world[2]).argmax(axis=1)
    assert (said == truth).mean() > 0.9


def test_later_rounds_ask_about_others_first(world, tmp_path):
    first, second = run(world, tmp_path).rounds
    assert len(set(first.queries) | set(second.queries)) == 600


def test_unsure_rounds_ask_where_the_student_is_least_sure(world, tmp_path):
    outcome = run(world, tmp_path, rounds(choose="unsure", queries=100))
    sureness = outcome.students[0].predict_proba(world[2]).max(axis=1)
    asked = np.zeros(700, dtype=bool)
    asked[outcome.rounds[1].queries] = True
    assert sureness[asked].max() <= sureness[~asked].min()


def test_a_student_learns_from_what_was_kept_and_later_answers_win(world, tmp_path):
    learner = Learner()
    outcome = run(world, tmp_path, rounds(choose="unsure"), learner=learner)
    (first_rows, first_labels), (rows, labels) = learner.lessons
    first, second = (
        dict(zip(asked.queries[kept], asked.labels[kept], strict=True))
        for asked, kept in zip(outcome.rounds, outcome.selected, strict=True)
    )
    assert dict(zip(first_rows, first_labels, strict=True)) == first
    assert dict(zip(rows, labels, strict=True)) == first | second


def test_the_second_round_spends_from_what_the_first_left(world, tmp_path):
    asker = labeller(world)
    run(world, tmp_path, asker=asker)
    left = asker.state()["remaining"]
    assert (left >= 0).all()
    assert (left < 2**48).all()
    alone = labeller(world)
    labelled(world, tmp_path / "alone", alone)
    assert int(asker.state()["answers"]) == 600
    assert int(alone.state()["answers"]) == 300


def test_labels_alone_keep_all_answers(world, tmp_path):
    outcome = run(world, tmp_path, asker=labeller(world, release="label"))
    assert [asked.margins for asked in outcome.rounds] == [None, None]
    assert [len(kept) for kept in outcome.selected] == [300, 300]


def test_kept_answers_are_those_with_the_largest_margins_of_all_or_of_each_class():
    margins = np.array([0.5, 3.0, -1.0, 2.0, 3.0, 0.1])
    labels = np.zeros(6, dtype=np.int64)
    assert Round(6, 1.0, keep=0.5).select_answers(margins, labels).tolist() == [1, 3, 4]
    assert Round(6, 1.0, keep=0.01).select_answers(margins, labels).tolist() == [1]
    assert Round(6, 1.0, keep=1.0).select_answers(margins, labels).tolist() == list(range(6))
    labels = np.array([0, 1, 0, 1, 1, 2])
    part = Round(6, 1.0, keep=0.5, by_class=True)
    assert part.select_answers(margins, labels).tolist() == [0, 1, 4, 5]
    assert part.select_answers(margins[:0], labels[:0]).tolist() == []


def test_what_is_asked_and_kept_depends_on_released_things_only(world, tmp_path):
    """Other private records, the same answers: the same queries, lessons and students."""

    @Labeller.register
    class Scripted:
        """Answers from a script, as if votes had come out so; private records are ignored."""

        classes = np.arange(C)

        def begin_round(self, _records, _reference, part):
            self.generator = np.random.default_rng(part.queries)

        def label(self, queries):
            size = len(queries)
            return Answers(
                self.generator.integers(C, size=size), self.generator.exponential(size=size)
            )

        def state(self):
            return {}

        def restore(self, _state):
            raise AssertionError

        def guarantee(self):
            return labeller(world).guarantee()

        def digest(self):
            return ""

    outcomes = []
    for number, records in enumerate((world[0], -world[0][:50])):
        learner = Learner()
        job = LabellingTask(records, world[2], Raw())
        with FileJournal(tmp_path / str(number)) as journal:
            plan = rounds(choose="unsure")
            labelling.run_labelling(job, Scripted(), learner, plan, journal, silent)
        outcomes.append(learner.lessons)
    for (rows, labels), (other_rows, other_labels) in zip(*outcomes, strict=True):
        np.testing.assert_array_equal(rows, other_rows)
        np.testing.assert_array_equal(labels, other_labels)


def test_a_finished_run_is_read_and_not_asked_again(world, tmp_path):
    first = run(world, tmp_path)

    class Mute(Learner):
        def learn(self, *_, **__):
            raise AssertionError

    asker = labeller(world)
    asker.label = None
    again = run(world, tmp_path, asker=asker, learner=Mute())
    np.testing.assert_array_equal(first.rounds[1].labels, again.rounds[1].labels)
    assert first.guarantee == again.guarantee


@pytest.mark.parametrize("change", ["records", "labels", "epsilon", "plan", "pool"])
def test_another_run_may_not_go_on_in_the_folder(world, tmp_path, change):
    run(world, tmp_path)
    records, labels, pool, _ = world
    options, plan = {"epsilon": 2.0}, rounds()
    if change == "records":
        records = records + 1e-9
    elif change == "labels":
        labels = np.roll(labels, 1)
    elif change == "pool":
        pool = pool[::-1]
    elif change == "epsilon":
        options = {"epsilon": 1.0}
    else:
        plan = rounds(keep=0.5)
    asker = IndKNNLabeller(range(C), labels, **options)
    with FileJournal(tmp_path) as journal, pytest.raises(InvalidInput, match="another run"):
        labelling.run_labelling(
            LabellingTask(records, pool, Raw()), asker, Learner(), plan, journal, silent
        )


def test_the_journal_returns_what_it_was_given(tmp_path):
    asked = RoundAnswers(np.array([3, 1, 2]), np.array([0, 1]), np.array([0.5, -1.0]))
    bare = RoundAnswers(np.array([4]), np.array([], dtype=np.int64), None)
    entry = JournalEntry("run", (asked, bare), {"remaining": np.arange(4), "slack": np.array(1e-9)})
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
    """Commit entries one after the other; return the journal's bytes after each."""
    contents = []
    with FileJournal(folder) as journal:
        journal.read()
        for size in sizes:
            journal.commit(entry(size))
            contents.append((folder / "journal.npz").read_bytes())
    return contents


def test_the_journal_is_for_its_owner_only(tmp_path):
    committed(tmp_path, 4)
    assert (tmp_path / "journal.npz").stat().st_mode & 0o077 == 0


def test_a_damaged_journal_is_refused_and_not_taken_for_none(tmp_path):
    (content,) = committed(tmp_path, 4)
    (tmp_path / "journal.npz").write_bytes(content[:-40])
    with (
        FileJournal(tmp_path) as journal,
        pytest.raises(InvalidInput, match="It holds what was paid for"),
    ):
        journal.read()


@pytest.mark.parametrize(("lost", "message"), [("journal", "is gone"), ("witness", "its witness")])
def test_a_journal_and_its_witness_go_together(tmp_path, lost, message):
    folder = tmp_path / "run"
    folder.mkdir()
    committed(folder, 4)
    (folder / "journal.npz" if lost == "journal" else tmp_path / "run.witness").unlink()
    with FileJournal(folder) as journal, pytest.raises(PrivacyRefused, match=message):
        journal.read()


@pytest.mark.parametrize("begun", [0, 1, 3])
def test_a_journal_that_ran_elsewhere_is_not_swapped_back(tmp_path, begun):
    """Fails if a copy that went further, with a witness of its own, is taken for what ran here."""
    here, there = tmp_path / "here", tmp_path / "there"
    (here / "run").mkdir(parents=True)
    committed(here / "run", 1)
    if not begun:  # as a kill after the first entry leaves it
        witness, content = here / "run.witness", WitnessState.read(here / "run.witness")
        witness.write_bytes(dataclasses.replace(content, clock=0).encode_header())
    committed(here / "run", *range(1, begun))
    shutil.copytree(here, there)
    committed(here / "run", *[7] * bool(begun))
    committed(there / "run", 7, 8, 9)
    shutil.copy(there / "run" / "journal.npz", here / "run" / "journal.npz")
    with FileJournal(here / "run") as journal, pytest.raises(PrivacyRefused, match="elsewhere"):
        journal.read()


def test_the_witness_of_another_run_is_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        committed(tmp_path / name, 4)
    (tmp_path / "two.witness").replace(tmp_path / "one.witness")
    with FileJournal(tmp_path / "one") as journal, pytest.raises(StorageFailed, match="another"):
        journal.read()


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


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_the_settled_plan_spends_the_whole_budget(number):
    plan = default_plan(number, 5000)
    assert len(plan.rounds) == number
    assert sum(part.share for part in plan.rounds) == pytest.approx(1.0)
    assert all(part.queries == 1500 for part in plan.rounds)
    assert not any(part.by_class for part in plan.rounds)


@pytest.mark.parametrize("soft", [None, np.array([[0.5, 0.5], [0.25, 0.75]], dtype=np.float32)])
def test_answers_come_back_from_their_file(tmp_path, soft):
    answers = ReleasedLabels(
        np.array([5, 2]), np.array(["cat", "dog"]), np.array([1.0, 0.1]),
        np.array([True, False]), ("cat", "dog"), {"epsilon": 1.0, "text": "..."}, soft,
    )  # fmt: skip
    save_answers(answers, tmp_path / "answers.npz")
    read = load_answers(tmp_path / "answers.npz")
    np.testing.assert_array_equal(read.soft_labels, soft)
    assert read.labels.tolist() == ["cat", "dog"]
    assert read.selected.tolist() == [True, False]
    assert read.classes == ("cat", "dog")
    assert read.guarantee == answers.guarantee
    assert (read.examples_digest, read.columns) == ("", None)
    for number in (float("nan"), float("inf")):
        broken = dataclasses.replace(answers, guarantee={"epsilon": number})
        save_answers(broken, tmp_path / "answers.npz")
        with pytest.raises(InvalidInput, match="damaged"):
            load_answers(tmp_path / "answers.npz")
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
    assert all(asked.complete for asked in run(world, tmp_path, learner=learner).rounds)
    assert not (tmp_path / "journal.npz.new").exists()


# ---------------------------------------------------------------- a private model beside the votes


def test_a_model_labels_and_is_stated(world, tmp_path):
    asker = labeller(world, model_share=0.5, n_records=900)
    assert "stays in the model" in str(asker.guarantee())
    asked, _ = labelled(world, tmp_path, asker)
    assert (asked.labels == world[3][asked.queries]).mean() > 0.9
    assert "stays in the model" in str(asker.guarantee())
    assert "model" not in str(labeller(world, model_share=0).guarantee())


def test_by_default_the_rule_decides_and_the_guarantee_says_what_it_did(world, tmp_path):
    trained = labeller(world, epsilon=8.0, n_records=900)
    assert "stays in the model" in str(trained.guarantee()), "it may, so it is stated"
    labelled(world, tmp_path / "one", trained)
    assert "stays in the model" in str(trained.guarantee())
    without = labeller(world, n_records=900, model_share=0)
    labelled(world, tmp_path / "two", without)
    assert "private model" not in str(without.guarantee())


@pytest.mark.parametrize("components", [False, True])
def test_after_a_kill_the_same_model_goes_on_and_is_not_paid_for_twice(
    world, tmp_path, monkeypatch, components
):
    if components:
        components_for_few(monkeypatch)
    killed = labeller(world, model_share=0.5, n_records=900)
    cut_after_first_block(killed, monkeypatch)
    with pytest.raises(Cut):
        labelled(world, tmp_path, killed)
    before = killed.state()
    heir = labeller(world, model_share=0.5, n_records=900)
    heir.restore(before)
    public_map = PublicMap(n_components=None).fit(world[2])
    heir.begin_round(*map(public_map.transform, (world[0], world[2])), ONE_ROUND.rounds[0])
    after = heir.state()
    assert before.keys() == after.keys()
    assert all((before[name] == after[name]).all() for name in before)
    assert before["model_put"] > 0
    assert ("model_projection" in before) == components
    asked, _ = labelled(world, tmp_path, labeller(world, model_share=0.5, n_records=900))
    assert (asked.labels == world[3][asked.queries]).mean() > 0.9


def test_rounds_with_other_features_have_no_model_and_say_why(world, tmp_path):
    asker = labeller(world, model_share=0.5, n_records=900)
    run(world, tmp_path, asker=asker)
    assert "model_share" not in asker.state()
    assert "model" not in str(asker.guarantee())
    asker = labeller(world, n_records=900)
    run(world, tmp_path / "other", asker=asker)
    assert "no private model was trained, as features change" in str(asker.guarantee())


WRONG_TYPES = {"task": "records", "labeller": "ind-knn", "plan": None, "journal": "run"}


@pytest.mark.parametrize("name", [*WRONG_TYPES, "begin_progress"])
def test_wrong_types_are_refused_by_name_and_before_a_charge(world, tmp_path, name):
    task = LabellingTask(world[0], world[2], Raw())
    arguments = {"task": task, "labeller": labeller(world), "plan": ONE_ROUND}
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
