"""The rounds of a labelling run.

Each round extracts features, queries the labeller, selects the most certain answers, and trains a
student model on them, whose features the next round uses.

Everywhere in this module an *example* is a row of the public pool, and indices of rows are those of
examples in the pool. `soft_labels`, float32 (m, c), are class probabilities of all m examples.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace

import numpy as np

from vicinal import checks
from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Floats32, Ints
from vicinal.errors import InvalidInput
from vicinal.features.public_map import PublicMap
from vicinal.labelling.journal import FileJournal, JournalEntry, RoundAnswers
from vicinal.labelling.labellers import (
    ABSTAINED,
    Answers,
    FeatureExtractor,
    Labeller,
    Learner,
    StudentModel,
)
from vicinal.labelling.plan import LEAST_CERTAIN, LabellingPlan
from vicinal.progress import Begin
from vicinal.tabular import align_columns, is_table, read_matrix

BLOCK = 256
"""Queries per commit to the journal. If the process is killed, at most one such block of
answers is lost."""


@dataclass(frozen=True, slots=True, eq=False)
class LabellingTask:
    """The data of a run: private records, public examples, and the features of the first round.

    Attributes
    ----------
    records : array (n, ...), or table of numbers
        Private records before feature extraction. The labeller has their labels and subjects.
    pool : array (m, ...), or table of numbers
        Public examples without labels, of the same shape. Table columns are matched by name.
    extractor : FeatureExtractor
        Feature map of the first round; it must not be trained on private data.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import HOGFeatures
    >>> from vicinal.labelling import LabellingTask
    >>> private, public = np.zeros((30, 28, 28), np.uint8), np.zeros((10, 28, 28), np.uint8)
    >>> task = LabellingTask(private, public, HOGFeatures())
    >>> task.digest() == LabellingTask(private, public, HOGFeatures()).digest()
    True
    """

    records: AnyArray
    pool: AnyArray
    extractor: FeatureExtractor

    def __post_init__(self) -> None:
        """Convert tables to arrays; raise InvalidInput for unusable fields, or other shapes."""
        if not hasattr(self.extractor, "transform"):
            raise InvalidInput(
                "The 'extractor' parameter must have a method 'transform', as HOGFeatures has. Got "
                f"a {type(self.extractor).__name__}."
            )
        if is_table(self.records) or is_table(self.pool):
            records = read_matrix("records", self.records)
            pool = align_columns("pool", self.pool, records.names, "the records")
            object.__setattr__(self, "records", records.values)
            object.__setattr__(self, "pool", pool)
        if not len(self.records) or self.records.shape[1:] != self.pool.shape[1:]:
            raise InvalidInput(
                "The private records and the public examples must have the same shape, and there "
                f"must be at least one record. Got {self.records.shape[1:]} and "
                f"{self.pool.shape[1:]}."
            )

    def digest(self) -> str:
        """Return the SHA-256 of records and pool, in hexadecimal digits. It is private."""
        digest = hashlib.sha256()
        for examples in (self.records, self.pool):
            digest.update(f"{examples.dtype}{examples.shape}".encode())
            digest.update(np.ascontiguousarray(examples).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class TransferResult:
    """The released results of all rounds.

    Attributes
    ----------
    student : StudentModel
        The student of the last round.
    students : tuple of StudentModel
        The student of each round.
    rounds : tuple of RoundAnswers
        Queries and answers of each round.
    selected : tuple of int64 arrays
        For each round, the indices of the answers in it that students were trained on.
    guarantee : Guarantee
        The guarantee of all answers and students together.

    Examples
    --------
    >>> from vicinal.labelling import run_labelling
    >>> result = run_labelling(task, labeller, learner, plan, journal, begin)  # doctest: +SKIP
    >>> result.guarantee.epsilon <= 1.0  # doctest: +SKIP
    True
    """

    student: StudentModel
    students: tuple[StudentModel, ...]
    rounds: tuple[RoundAnswers, ...]
    selected: tuple[Ints, ...]
    guarantee: Guarantee


def run_labelling(
    task: LabellingTask,
    labeller: Labeller,
    learner: Learner,
    plan: LabellingPlan,
    journal: FileJournal,
    begin_progress: Begin,
) -> TransferResult:
    """Run all rounds of a plan: query the labeller and train students; return answers and students.

    A call with the same arguments resumes a killed run from the journal. Raises InvalidInput if the
    journal belongs to another run.

    Parameters
    ----------
    task, labeller, learner, plan
        The data, the mechanism that answers queries, the trainer of students, and the rounds.
    journal : FileJournal
        Makes answers durable before they are used. Students are stored in its folder.
    begin_progress : callable
        Starts the progress display of a step, given its name and size.

    Examples
    --------
    >>> from vicinal.labelling import run_labelling
    >>> result = run_labelling(task, labeller, learner, plan, journal, begin)  # doctest: +SKIP
    >>> result.student.predict_proba(images).shape  # doctest: +SKIP
    (100, 10)
    """
    run = _LabellingRun(task, labeller, plan, journal, begin_progress)
    run.resume_from_journal()
    students: list[StudentModel] = []
    for round_index in range(len(plan.rounds)):
        run.complete_round(round_index, students)
        students.append(run.load_or_train_student(round_index, learner))
    return TransferResult(
        students[-1],
        tuple(students),
        tuple(run.rounds),
        tuple(run.select_answers(round_index) for round_index in range(len(run.rounds))),
        labeller.guarantee(),
    )


def label(
    task: LabellingTask,
    labeller: Labeller,
    plan: LabellingPlan,
    journal: FileJournal,
    begin_progress: Begin,
) -> tuple[RoundAnswers, Ints]:
    """Query the labeller for a plan of one round, without training a student.

    Subjects are charged for the answers. Arguments are those of :func:`run_labelling`, and a killed
    run is resumed in the same way. Raises InvalidInput if the plan has several rounds, which need a
    student, or the journal belongs to another run.

    Returns
    -------
    answers : RoundAnswers
        Queries and answers.
    selected : int64 (k,)
        Indices of the answers that a student should be trained on.

    Examples
    --------
    >>> import numpy as np
    >>> from contextlib import closing
    >>> from vicinal import HOGFeatures
    >>> from vicinal.labelling import (
    ...     FileJournal,
    ...     IndKNNLabeller,
    ...     LabellingTask,
    ...     default_plan,
    ...     label,
    ... )
    >>> draws = np.random.default_rng(0)
    >>> private, public = (draws.integers(0, 255, (n, 28, 28), np.uint8) for n in (600, 200))
    >>> labeller = IndKNNLabeller([0, 1], draws.integers(0, 2, 600), n_records=600)
    >>> task = LabellingTask(private, public, HOGFeatures())
    >>> def begin(step, size):
    ...     return lambda done: None  # no progress is shown
    >>> with closing(FileJournal("run")) as journal:
    ...     answers, selected = label(task, labeller, default_plan(1, pool=200), journal, begin)
    >>> answers.complete
    True
    """
    checks.check_instance("plan", plan, LabellingPlan)
    if len(plan.rounds) != 1:
        raise InvalidInput("The plan must be of one round: more need a student between them.")
    run = _LabellingRun(task, labeller, plan, journal, begin_progress)
    run.resume_from_journal()
    run.complete_round(0, [])
    return run.rounds[0], run.select_answers(0)


@dataclass(slots=True)
class _LabellingRun:
    """A run in progress. The first fields are the arguments of :func:`run_labelling`.

    `rounds`: queries and answers of all rounds that have begun. `input_digest`: identifies data and
    parameters. In all methods `round_index` is the number of a round, from 0, and `students` are
    those of all previous rounds.
    """

    task: LabellingTask
    labeller: Labeller
    plan: LabellingPlan
    journal: FileJournal
    begin_progress: Begin
    rounds: list[RoundAnswers] = field(default_factory=list)
    input_digest: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput for an argument of a wrong type."""
        types = {
            "task": LabellingTask,
            "labeller": Labeller,
            "plan": LabellingPlan,
            "journal": FileJournal,
        }
        for name, cls in types.items():
            checks.check_instance(name, getattr(self, name), cls)
        if not callable(self.begin_progress):
            raise InvalidInput("The 'begin_progress' parameter must be a function.")

    def complete_round(self, round_index: int, students: list[StudentModel]) -> None:
        """Choose the queries of a round, unless it has begun, and query the labeller for them."""
        if round_index == len(self.rounds):
            queries = self._choose_queries(round_index, students)
            self.rounds.append(RoundAnswers(queries, np.zeros(0, dtype=np.int64), np.zeros(0)))
        if not self.rounds[round_index].complete:
            self._query_labeller(round_index, students[-1] if students else self.task.extractor)

    def resume_from_journal(self) -> None:
        """Restore answered rounds and the labeller's budgets from the journal.

        Raises InvalidInput if the journal belongs to another run, or is missing beside students.
        """
        inputs = [self.task.digest(), self.labeller.digest(), self.plan.to_dict()]
        self.input_digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        entry = self.journal.read()
        if entry is None:
            if any(self.journal.folder.glob("student-*")):
                raise InvalidInput(
                    f"The folder {self.journal.folder} holds students but no journal. Choose an "
                    "empty folder; what their run has spent stays spent."
                )
            return
        if entry.input_digest != self.input_digest:
            raise InvalidInput(
                f"The folder {self.journal.folder} holds another run: other records, examples or "
                "parameters. Choose another folder; what that run has spent stays spent."
            )
        self.rounds = list(entry.rounds)
        self.labeller.restore(entry.state)

    def _choose_queries(self, round_index: int, students: list[StudentModel]) -> Ints:
        """Return the row indices, int64 (q,), of the examples that a round queries.

        If the plan says "unsure", they are those to which the last student gives the smallest
        maximal class probability. Otherwise they are the next ones of the public order; examples
        that an earlier round queried come last.
        """
        planned_round = self.plan.rounds[round_index]
        order = self.plan.shuffle_examples(len(self.task.pool))
        if planned_round.choose == LEAST_CERTAIN:
            confidence = students[-1].predict_proba(self.task.pool).max(axis=1)
            return np.sort(np.argsort(confidence, kind="stable")[: planned_round.queries])
        queried = np.isin(order, np.concatenate([r.queries for r in self.rounds] or [order[:0]]))
        return np.concatenate([order[~queried], order[queried]])[: planned_round.queries]

    def _query_labeller(self, round_index: int, extractor: FeatureExtractor) -> None:
        """Extract the features of a round, and query the labeller for its remaining answers.

        `extractor`: maps examples and private records to features.
        """
        planned_round = self.plan.rounds[round_index]
        step = self.begin_progress(f"round {round_index + 1}: features", 2)
        features = extractor.transform(self.task.pool)
        public_map = PublicMap(planned_round.components).fit(features)
        public_features = public_map.transform(features)
        step(1)
        record_features = public_map.transform(extractor.transform(self.task.records))
        step(1)
        probabilities = self.labeller.begin_round(record_features, public_features, planned_round)
        if probabilities is not None and self.rounds[round_index].soft_labels is None:
            soft_labels = np.asarray(probabilities, dtype=np.float32)
            self.rounds[round_index] = replace(self.rounds[round_index], soft_labels=soft_labels)
        # The first fit may release a noisy number of records, which must be durable before any
        # answer depends on it.
        self._commit()
        round_answers = self.rounds[round_index]
        step = self.begin_progress(f"round {round_index + 1}: answers", len(round_answers.queries))
        step(len(round_answers.labels))
        while not self.rounds[round_index].complete:
            step(self._query_block(round_index, public_features))

    def _query_block(self, round_index: int, public_features: AnyArray) -> int:
        """Query the labeller for a round's next block, and store the answers; return their number.

        `public_features`, (m, d): features of all examples.
        """
        round_answers = self.rounds[round_index]
        n_answered = len(round_answers.labels)
        block = round_answers.queries[n_answered : n_answered + BLOCK]
        answers = self.labeller.label(public_features[block])
        margins = answers.margins
        if margins is not None and round_answers.margins is not None:
            margins = np.concatenate([round_answers.margins, margins])
        labels = np.concatenate([round_answers.labels, answers.labels])
        soft_labels = _update_soft_labels(round_answers.soft_labels, block, answers)
        self.rounds[round_index] = RoundAnswers(round_answers.queries, labels, margins, soft_labels)
        self._commit()
        return len(block)

    def _commit(self) -> None:
        """Store the answers so far and the labeller's spent budgets durably."""
        self.journal.commit(
            JournalEntry(self.input_digest, tuple(self.rounds), self.labeller.state())
        )

    def select_answers(self, round_index: int) -> Ints:
        """Return the indices of a round's answers that a student is trained on, int64 (k,).

        They are ascending; queries without an answer are left out.
        """
        round_answers = self.rounds[round_index]
        answered = np.flatnonzero(round_answers.labels != ABSTAINED)
        if round_answers.margins is None:
            return answered
        return answered[
            self.plan.rounds[round_index].select_answers(
                round_answers.margins[answered], round_answers.labels[answered]
            )
        ]

    def load_or_train_student(self, round_index: int, learner: Learner) -> StudentModel:
        """Return the student of a round: from its file, or trained now and written to its file."""
        path = self.journal.folder / f"student-{round_index + 1}.pt"
        if path.exists():
            return learner.load(path)
        rows, labels = self._collect_training_set(round_index)
        soft_labels = self.rounds[round_index].soft_labels
        student = learner.learn(
            self.task.pool, rows, labels, round_index, self.begin_progress, soft_labels
        )
        learner.save(student, path, self.labeller.guarantee())
        return student

    def _collect_training_set(self, round_index: int) -> tuple[Ints, Ints]:
        """Return the training set of a round's student: row and class indices of examples.

        Both are int64 (k,), by ascending row index. They are the selected answers of this and all
        earlier rounds. Where rounds answered the same example, the last selected answer counts.
        """
        label_of: dict[int, int] = {}
        for index, round_answers in enumerate(self.rounds[: round_index + 1]):
            selected = self.select_answers(index)
            rows = round_answers.queries[selected].tolist()
            label_of |= zip(rows, round_answers.labels[selected].tolist(), strict=True)
        training_set = np.array(sorted(label_of.items()), dtype=np.int64).reshape(-1, 2)
        return training_set[:, 0].copy(), training_set[:, 1].copy()


def _update_soft_labels(
    soft_labels: Floats32 | None, rows: Ints, answers: Answers
) -> Floats32 | None:
    """Return a copy of `soft_labels`, updated by `answers`; None if `soft_labels` is None.

    `rows`, int64 (q,): indices of the queried examples. An answer with class probabilities replaces
    its row. A label alone that differs from the row's most probable class is averaged with the row,
    with equal weights.
    """
    if soft_labels is None:
        return None
    updated = soft_labels.copy()
    if answers.soft_labels is not None:
        updated[rows] = answers.soft_labels
        return updated
    differs = updated[rows].argmax(axis=1) != answers.labels
    updated[rows[differs]] /= 2
    updated[rows[differs], answers.labels[differs]] += 0.5
    return updated
