"""The rounds: embed, ask, keep what is sure, train, and ask again with better features."""

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal.accounting.guarantee import Guarantee
from vicinal.arrays import AnyArray, Floats32, Places
from vicinal.errors import InvalidInput
from vicinal.features.public_map import PublicMap
from vicinal.labelling.journal import AskedRound, FileJournal, JournalEntry
from vicinal.labelling.labellers import (
    ABSTAINED,
    Answered,
    FeatureExtractor,
    Labeller,
    Learner,
    StudentModel,
)
from vicinal.labelling.plan import UNSURE, LabellingPlan, Round
from vicinal.progress import Begin
from vicinal.tabular import align_columns, is_table, read_matrix

BLOCK = 256
"""Questions between two entries of the journal."""


@dataclass(frozen=True, slots=True, eq=False)
class LabellingTask:
    """What the rounds are about.

    Attributes
    ----------
    records : array (n, ...), or table of numbers
        Private examples, raw. Their labels and subjects are with the labeller.
    pool : array (m, ...), or table of numbers
        Public examples without labels, of the same kind. Columns of tables are found by name.
    extractor : FeatureExtractor
        Features of the first round. Learnt from public data, if at all.

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
        """Return a digest of all examples; private, as it is made from records."""
        digest = hashlib.sha256()
        for examples in (self.records, self.pool):
            digest.update(f"{examples.dtype}{examples.shape}".encode())
            digest.update(np.ascontiguousarray(examples).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class TransferResult:
    """What came of all rounds; everything in it is released.

    Attributes
    ----------
    student : StudentModel
        The last round's.
    students : tuple of StudentModel
        One for each round.
    rounds : tuple of AskedRound
        Questions and answers of each round.
    selected : tuple of int64 arrays
        Which answers of each round were learnt from, as positions in the round.
    guarantee : Guarantee
        Of everything together, the students included.

    Examples
    --------
    >>> from vicinal.labelling import transfer
    >>> result = transfer(task, labeller, learner, plan, journal, begin)  # doctest: +SKIP
    >>> result.guarantee.epsilon <= 1.0  # doctest: +SKIP
    True
    """

    student: StudentModel
    students: tuple[StudentModel, ...]
    rounds: tuple[AskedRound, ...]
    selected: tuple[Places, ...]
    guarantee: Guarantee


def transfer(
    job: LabellingTask,
    labeller: Labeller,
    learner: Learner[Any],
    plan: LabellingPlan,
    journal: FileJournal,
    begin: Begin,
) -> TransferResult:
    """Carry out a plan, or what is left of it after a kill.

    Parameters
    ----------
    job, labeller, learner, plan
        What to ask about, who answers, who learns, how much.
    journal : FileJournal
        Where answers become durable before they are used. Students are kept in its folder.
    begin : callable
        Is told of progress.

    Raises
    ------
    InvalidInput
        If the journal is of another run.

    Examples
    --------
    >>> from vicinal.labelling import transfer
    >>> result = transfer(task, labeller, learner, plan, journal, begin)  # doctest: +SKIP
    >>> result.student.predict_proba(images).shape  # doctest: +SKIP
    (100, 10)
    """
    return _Transfer(job, labeller, plan, journal, begin, learner).carry_out()


def label(
    job: LabellingTask, labeller: Labeller, plan: LabellingPlan, journal: FileJournal, begin: Begin
) -> tuple[AskedRound, Places]:
    """Carry out a plan of one round without training anybody.

    Returns
    -------
    asked : AskedRound
        Questions and answers.
    kept : int64 (k,)
        Which of them a student should learn from.

    Raises
    ------
    InvalidInput
        If there are more rounds, which would need a student; if the journal is of another run.

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
    ...     asked, chosen = label(task, labeller, default_plan(1, pool=200), journal, begin)
    >>> asked.complete
    True
    """
    if len(plan.rounds) != 1:
        raise InvalidInput("The plan must be of one round: more need a student between them.")
    return _Transfer(job, labeller, plan, journal, begin).answers()


@dataclass(slots=True)
class _Transfer:
    job: LabellingTask
    labeller: Labeller
    plan: LabellingPlan
    journal: FileJournal
    begin: Begin
    learner: Learner[Any] | None = None
    rounds: list[AskedRound] = field(default_factory=list)
    run: str = ""

    def carry_out(self) -> TransferResult:
        """Go through all rounds, from where the journal ends to the last student."""
        self._take_up()
        students: list[StudentModel] = []
        for number in range(len(self.plan.rounds)):
            self._answer(number, students)
            students.append(self._student(number))
        return TransferResult(
            students[-1],
            tuple(students),
            tuple(self.rounds),
            tuple(self._selected(number) for number in range(len(self.rounds))),
            self.labeller.guarantee(),
        )

    def answers(self) -> tuple[AskedRound, Places]:
        """Ask the first round only; return its answers, and which of them to learn from."""
        self._take_up()
        self._answer(0, [])
        return self.rounds[0], self._selected(0)

    def _answer(self, number: int, students: list[StudentModel]) -> None:
        part = self.plan.rounds[number]
        if number == len(self.rounds):
            nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
            self.rounds.append(AskedRound(self._queries(part, students), *nothing))
        if not self.rounds[number].complete:
            self._ask(number, part, self._extractor(students))

    def _extractor(self, students: list[StudentModel]) -> FeatureExtractor:
        return students[-1] if students else self.job.extractor

    def _take_up(self) -> None:
        parts = [self.job.digest(), self.labeller.digest(), self.plan.to_dict()]
        self.run = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        entry = self.journal.read()
        if entry is None:
            if any(self.journal.folder.glob("student-*")):
                raise InvalidInput(
                    f"The folder {self.journal.folder} holds students but no journal. Choose an "
                    "empty folder; what their run has spent stays spent."
                )
            return
        if entry.run != self.run:
            raise InvalidInput(
                f"The folder {self.journal.folder} holds another run: other records, examples or "
                "parameters. Choose another folder; what that run has spent stays spent."
            )
        self.rounds = list(entry.rounds)
        self.labeller.restore(entry.state)

    def _queries(self, part: Round, students: list[StudentModel]) -> Places:
        """Return whom to ask about: next in the public order, or where the student is unsure."""
        order = self.plan.order(len(self.job.pool))
        if part.choose == UNSURE:
            sureness = students[-1].predict_proba(self.job.pool).max(axis=1)
            return np.sort(np.argsort(sureness, kind="stable")[: part.queries])
        # Those that nobody asked about come first.
        queried = np.isin(order, np.concatenate([r.queries for r in self.rounds] or [order[:0]]))
        return np.concatenate([order[~queried], order[queried]])[: part.queries]

    def _ask(self, number: int, part: Round, extractor: FeatureExtractor) -> None:
        step = self.begin(f"round {number + 1}: features", 2)
        features = extractor.transform(self.job.pool)
        public_map = PublicMap(part.components).fit(features)
        reference = public_map.transform(features)
        step(1)
        records = public_map.transform(extractor.transform(self.job.records))
        step(1)
        released = self.labeller.embed(records, reference, part)
        if released is not None and self.rounds[number].soft_labels is None:
            soft = np.asarray(released, dtype=np.float32)
            self.rounds[number] = replace(self.rounds[number], soft_labels=soft)
        # The first embedding may have estimated a size: durable before anything follows from it.
        self._commit()
        asked_round = self.rounds[number]
        step = self.begin(f"round {number + 1}: answers", len(asked_round.queries))
        step(len(asked_round.labels))
        while not self.rounds[number].complete:
            step(self._ask_block(number, reference))

    def _ask_block(self, number: int, reference: AnyArray) -> int:
        asked_round = self.rounds[number]
        done = len(asked_round.labels)
        block = asked_round.queries[done : done + BLOCK]
        answered = self.labeller.label(reference[block])
        margins = answered.margins
        if margins is not None and asked_round.margins is not None:
            margins = np.concatenate([asked_round.margins, margins])
        labels = np.concatenate([asked_round.labels, answered.labels])
        soft = _updated(asked_round.soft_labels, block, answered)
        self.rounds[number] = AskedRound(asked_round.queries, labels, margins, soft)
        self._commit()
        return len(block)

    def _commit(self) -> None:
        self.journal.commit(JournalEntry(self.run, tuple(self.rounds), self.labeller.state()))

    def _selected(self, number: int) -> Places:
        asked_round = self.rounds[number]
        answered = np.flatnonzero(asked_round.labels != ABSTAINED)
        if asked_round.margins is None:
            return answered
        return answered[
            self.plan.rounds[number].selected(
                asked_round.margins[answered], asked_round.labels[answered]
            )
        ]

    def _student(self, number: int) -> StudentModel:
        """Return the student of a round: the stored one, or a new one, which is stored."""
        assert self.learner is not None  # noqa: S101 (narrows the type: label() trains nobody)
        path = self.journal.folder / f"student-{number + 1}.pt"
        if path.exists():
            stored: StudentModel = self.learner.load(path)
            return stored
        rows, labels = self._labelled(number)
        student: StudentModel = self.learner.learn(
            self.job.pool, rows, labels, number, self.begin, self.rounds[number].soft_labels
        )  # fmt: skip
        self.learner.save(student, path, self.labeller.guarantee())
        return student

    def _labelled(self, number: int) -> tuple[Places, Places]:
        """Return examples and answers up to a round; a later answer replaces an earlier one."""
        label_of: dict[int, int] = {}
        for earlier in range(number + 1):
            asked_round, places = self.rounds[earlier], self._selected(earlier)
            label_of |= zip(
                asked_round.queries[places].tolist(),
                asked_round.labels[places].tolist(),
                strict=True,
            )
        rows = np.array(sorted(label_of), dtype=np.int64)
        return rows, np.array([label_of[row] for row in rows.tolist()], dtype=np.int64)


def _updated(soft_labels: Floats32 | None, rows: Places, answered: Answered) -> Floats32 | None:
    """Return soft labels (m, c) with what the answers of a block say in their rows.

    Where labels alone are released, one that is not the model's counts as much as the model.
    """
    if soft_labels is None:
        return None
    updated = soft_labels.copy()
    if answered.soft_labels is not None:
        updated[rows] = answered.soft_labels
        return updated
    voted = updated[rows].argmax(axis=1) != answered.labels
    updated[rows[voted]] /= 2
    updated[rows[voted], answered.labels[voted]] += 0.5
    return updated
