"""The rounds of a labelling run.

Each round extracts features, queries the labeller, selects the most certain answers, and trains a
student model on them, whose features the next round uses.
"""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

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
from vicinal.labelling.plan import LEAST_CERTAIN, LabellingPlan, Round
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
        Private examples before feature extraction. The labeller has their labels and subjects.
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
        """Convert tables to arrays; raise InvalidInput if the examples have different shapes."""
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
        """Return a SHA-256 digest of the private records and the public pool. It is private."""
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
    learner: Learner[Any],
    plan: LabellingPlan,
    journal: FileJournal,
    begin_progress: Begin,
) -> TransferResult:
    """Run all rounds of a plan: query the labeller and train students; return answers and students.

    After the process was killed, a call with the same arguments resumes from the journal. Raises
    InvalidInput if the journal belongs to another run.

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
    return _LabellingRun(task, labeller, plan, journal, begin_progress, learner).run_all_rounds()


def label(
    task: LabellingTask,
    labeller: Labeller,
    plan: LabellingPlan,
    journal: FileJournal,
    begin_progress: Begin,
) -> tuple[RoundAnswers, Ints]:
    """Query the labeller for a plan of one round, without training a student.

    Subjects are charged for the answers. After the process was killed, a call with the same
    arguments resumes from the journal. Arguments are those of :func:`run_labelling`. Raises
    InvalidInput if the plan has several rounds, which need a student, or the journal belongs to
    another run.

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
    if len(plan.rounds) != 1:
        raise InvalidInput("The plan must be of one round: more need a student between them.")
    return _LabellingRun(task, labeller, plan, journal, begin_progress).run_first_round()


@dataclass(slots=True)
class _LabellingRun:
    """A run in progress: `rounds` are those begun, `input_digest` identifies data and parameters.

    The other fields are the arguments of :func:`run_labelling`. A `round_index` is from 0.
    """

    task: LabellingTask
    labeller: Labeller
    plan: LabellingPlan
    journal: FileJournal
    begin_progress: Begin
    learner: Learner[Any] | None = None
    rounds: list[RoundAnswers] = field(default_factory=list)
    input_digest: str = ""

    def run_all_rounds(self) -> TransferResult:
        """Return the answers and students of all rounds, starting where the journal ends."""
        self._resume_from_journal()
        students: list[StudentModel] = []
        for round_index in range(len(self.plan.rounds)):
            self._complete_round(round_index, students)
            students.append(self._load_or_train_student(round_index))
        return TransferResult(
            students[-1],
            tuple(students),
            tuple(self.rounds),
            tuple(self._select_answers(round_index) for round_index in range(len(self.rounds))),
            self.labeller.guarantee(),
        )

    def run_first_round(self) -> tuple[RoundAnswers, Ints]:
        """Return queries and answers of the first round, and the indices of the answers selected.

        The indices, int64 (k,), are of answers to train a student on. The round starts where the
        journal ends.
        """
        self._resume_from_journal()
        self._complete_round(0, [])
        return self.rounds[0], self._select_answers(0)

    def _complete_round(self, round_index: int, students: list[StudentModel]) -> None:
        """Choose the queries of a round, unless it has begun, and query the labeller for them all.

        `students`: the student of each previous round.
        """
        planned_round = self.plan.rounds[round_index]
        if round_index == len(self.rounds):
            queries = self._choose_queries(planned_round, students)
            self.rounds.append(RoundAnswers(queries, np.zeros(0, dtype=np.int64), np.zeros(0)))
        if not self.rounds[round_index].complete:
            extractor = students[-1] if students else self.task.extractor
            self._query_labeller(round_index, planned_round, extractor)

    def _resume_from_journal(self) -> None:
        """Restore answered rounds and the labeller's budgets from the journal.

        Raises InvalidInput if the journal belongs to another run.
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

    def _choose_queries(self, planned_round: Round, students: list[StudentModel]) -> Ints:
        """Return the row indices, int64 (q,), of the public examples that a round queries.

        Where `planned_round.choose` is "unsure", they are those to which the last of `students`,
        trained in the previous rounds, gives the smallest maximal class probability. Otherwise they
        are the next ones of the public order; examples that an earlier round queried come last.
        """
        order = self.plan.order(len(self.task.pool))
        if planned_round.choose == LEAST_CERTAIN:
            confidence = students[-1].predict_proba(self.task.pool).max(axis=1)
            return np.sort(np.argsort(confidence, kind="stable")[: planned_round.queries])
        # Examples that no earlier round queried come first.
        queried = np.isin(order, np.concatenate([r.queries for r in self.rounds] or [order[:0]]))
        return np.concatenate([order[~queried], order[queried]])[: planned_round.queries]

    def _query_labeller(
        self, round_index: int, planned_round: Round, extractor: FeatureExtractor
    ) -> None:
        """Extract the features of a round, and query the labeller for its remaining answers.

        `planned_round`: the parameters of the round. `extractor`: maps public examples and private
        records to features.
        """
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
        # The first embedding may release a noisy number of records, which must be durable before
        # any answer depends on it.
        self._commit()
        round_answers = self.rounds[round_index]
        step = self.begin_progress(f"round {round_index + 1}: answers", len(round_answers.queries))
        step(len(round_answers.labels))
        while not self.rounds[round_index].complete:
            step(self._query_block(round_index, public_features))

    def _query_block(self, round_index: int, public_features: AnyArray) -> int:
        """Query the labeller for a round's next block, and store the answers; return their number.

        `public_features`, (m, d): features of all public examples.
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

    def _select_answers(self, round_index: int) -> Ints:
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

    def _load_or_train_student(self, round_index: int) -> StudentModel:
        """Return the student of a round: from its file, or trained now and written to its file."""
        assert self.learner is not None  # noqa: S101 (narrows the type: run_labelling() has a learner)
        path = self.journal.folder / f"student-{round_index + 1}.pt"
        if path.exists():
            stored: StudentModel = self.learner.load(path)
            return stored
        rows, labels = self._collect_training_set(round_index)
        student: StudentModel = self.learner.learn(
            self.task.pool,
            rows,
            labels,
            round_index,
            self.begin_progress,
            self.rounds[round_index].soft_labels,
        )
        self.learner.save(student, path, self.labeller.guarantee())
        return student

    def _collect_training_set(self, round_index: int) -> tuple[Ints, Ints]:
        """Return the training set of a round's student: row and class indices of public examples.

        Both are int64 (k,), by ascending row index. They are the selected answers of this and all
        earlier rounds. Where rounds answered the same example, the last selected answer counts.
        """
        label_of: dict[int, int] = {}
        for index in range(round_index + 1):
            round_answers = self.rounds[index]
            selected = self._select_answers(index)
            label_of |= zip(
                round_answers.queries[selected].tolist(),
                round_answers.labels[selected].tolist(),
                strict=True,
            )
        rows = np.array(sorted(label_of), dtype=np.int64)
        return rows, np.array([label_of[row] for row in rows.tolist()], dtype=np.int64)


def _update_soft_labels(
    soft_labels: Floats32 | None, rows: Ints, answers: Answers
) -> Floats32 | None:
    """Return a copy of soft labels (m, c), updated by `answers` to the queries `rows` (q,).

    `soft_labels`: class probabilities of all public examples; None stays None. `rows`: indices of
    the queried examples. An answer with class probabilities replaces its row. A label alone that
    differs from the row's most probable class is averaged with the row, with equal weights.
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
