"""`vicinal label`, `student` and `transfer`: from private records to a model to be published."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option, echo

from vicinal import __version__
from vicinal.cli._outlook import show_outlook
from vicinal.cli.options import AcceptWeakPlan, DryRun, Json, grouped
from vicinal.cli.output import as_json, check_outputs, in_paragraphs, show_progress_bars
from vicinal.errors import InvalidInput, PrivacyRefused

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray
    from vicinal.datasets.dataset import Dataset
    from vicinal.labelling.answers import ReleasedLabels
    from vicinal.labelling.journal import AskedRound
    from vicinal.labelling.labellers import FeatureExtractor, FixedPlanLabeller, IndKNNLabeller
    from vicinal.labelling.loop import LabellingTask, TransferResult
    from vicinal.labelling.plan import LabellingPlan, Round
    from vicinal.predictors.private_knn import PrivateKNNClassifier
    from vicinal.reports.outcomes import ClassFigures
    from vicinal.students.student import Student
    from vicinal.students.training import Recipe

IND_KNN, PRIVATE_KNN = "ind-knn", "private-knn"
KINDS = (IND_KNN, PRIVATE_KNN)

Seed = Annotated[int, Option(help="Seed for the order of queries and for training. Public.")]
Overlapping = Annotated[bool, Option("--overlapping", help="For classes that overlap.")]
Public = Annotated[
    Path, Option(help="npz file: x, public examples; y, if there, is compared with the answers.")
]

_LABELLER_OF = {
    **dict.fromkeys(("records", "records_per_subject", "model_share"), IND_KNN),
    **dict.fromkeys(("neighbors", "sampling_rate"), PRIVATE_KNN),
    **dict.fromkeys(("sigma_votes", "sigma_screen", "threshold"), PRIVATE_KNN),
}
"""The labeller that an option is for; the others are for both."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Who is asked, about what, and where answers are kept."""

    private: Annotated[Path, Option(help="npz file of private records: x, y, perhaps subjects.")]
    public: Public
    classes: Annotated[
        list[str],
        Option(
            help="All class names, as in '0-9' or 'cat,dog,horse'; or repeat the option, for each "
            "name once."
        ),
    ]
    folder: Annotated[
        Path, Option(help="Private folder of the run. Repeat the command to resume it.")
    ]

    @property
    def inputs(self) -> dict[str, Path | None]:
        """What is read, by the names of options."""
        return {"private": self.private, "public": self.public, "folder": self.folder}

    def read(self) -> tuple[list[Any], Dataset, Dataset, AnyArray | None]:
        """Return class names, private records, public examples, and what these truly are."""
        from vicinal.parameters import ClassNames

        check = ClassNames()
        names = check("classes", check.parsed_option(self.classes)).tolist()
        dataset, pool = _load(self.private), _load(self.public)
        return names, dataset, pool, _truth_of(pool, names)


@dataclass(frozen=True, slots=True)
class LabellerOptions:
    """Who answers, and for how much. An option of another labeller is refused."""

    labeller: Annotated[str, Option(help="Who labels: ind-knn or private-knn.")] = IND_KNN
    epsilon: Annotated[float, Option(help="Upper bound on the privacy loss of the whole run.")] = (
        1.0
    )
    delta: Annotated[
        float | None,
        Option(help="Probability that the bound fails. Default: 1e-5, or .1/records if less."),
    ] = None
    records: Annotated[
        int | None, Option(help="Public number of records. Default: estimated with noise.")
    ] = None
    records_per_subject: Annotated[
        float | None, Option(help="Public mean number of records per subject. Default: 1.")
    ] = None
    neighbors: Annotated[int | None, Option(help="How many records vote. Default: 300.")] = None
    sampling_rate: Annotated[
        float | None, Option(help="Chance that a subject is in a sample. Default: .15.")
    ] = None
    sigma_votes: Annotated[
        float | None, Option(help="Noise on the votes. Default: the least that keeps epsilon.")
    ] = None
    sigma_screen: Annotated[
        float | None, Option(help="Noise of the screening. Default: no screening.")
    ] = None
    threshold: Annotated[float | None, Option(help="Threshold of the screening.")] = None
    yes: AcceptWeakPlan = False

    @property
    def planned_delta(self) -> float:
        from vicinal.planning.plan import default_delta

        return default_delta(self.records) if self.delta is None else self.delta

    @property
    def release(self) -> str:
        """What leaves."""
        return "votes"

    @property
    def model_share(self) -> str | None:
        """The share of budgets that trains a private model: none where features change."""
        return "0"

    def __post_init__(self) -> None:
        from vicinal import checks
        from vicinal.planning.guarantees import refuse_weak

        checks.check_choice("labeller", self.labeller, KINDS)
        checks.check_real("epsilon", self.epsilon, above=0)
        if not self.yes:
            refuse_weak(self.epsilon, self.planned_delta, self.records)
        # A share that is no option here, as in several rounds, is nobody's choice.
        options = {field.name for field in fields(self)}
        for name, kind in _LABELLER_OF.items():
            is_set = name in options and getattr(self, name) is not None
            if is_set and self.labeller != kind:
                option = "--" + name.replace("_", "-")
                raise InvalidInput(f"The option {option} is for {kind} only.")
        if (self.sigma_screen is None) != (self.threshold is None):
            raise InvalidInput("Screening needs both --sigma-screen and --threshold.")

    def labeller_of(
        self, dataset: Dataset, classes: list[Any], plan: LabellingPlan
    ) -> IndKNNLabeller | FixedPlanLabeller:
        """Return who answers; noise or screening that costs more than epsilon is refused."""
        from vicinal.labelling.labellers import FixedPlanLabeller, IndKNNLabeller
        from vicinal.labelling.plan import least_noise

        labels, subjects = dataset.labels, dataset.subjects
        if labels is None:
            raise InvalidInput("The private file must have labels, called y.")
        if self.labeller == IND_KNN:
            try:  # a share that is no number is refused later, by name
                share: Any = "auto" if self.model_share is None else float(self.model_share)
            except ValueError:
                share = self.model_share
            return IndKNNLabeller(
                classes, labels, subjects, epsilon=self.epsilon, delta=self.planned_delta,
                release=self.release, n_records=self.records, model_share=share,
                **_set_options(records_per_subject=self.records_per_subject),
            )  # fmt: skip

        def with_noise(sigma: float) -> FixedPlanLabeller:
            make = partial(self._classifier, classes, plan, sigma)
            return FixedPlanLabeller(make, plan, labels, subjects)

        if self.sigma_votes is None:
            least = least_noise(lambda s: with_noise(s).epsilon(), self.epsilon)
            return with_noise(least)
        if not (price := with_noise(self.sigma_votes).epsilon()) <= self.epsilon:
            raise PrivacyRefused(
                f"The plan costs epsilon {price:.4g}, which is above --epsilon {self.epsilon:g}. "
                "Use more noise or a larger epsilon, or leave --sigma-votes out."
            )
        return with_noise(self.sigma_votes)

    def _classifier(
        self, classes: list[Any], plan: LabellingPlan, sigma: float, part: Round
    ) -> PrivateKNNClassifier:
        from vicinal.labelling.plan import noise_of
        from vicinal.predictors.private_knn import PrivateKNNClassifier

        return PrivateKNNClassifier(
            classes, sigma_votes=noise_of(part, plan, sigma),
            sigma_screen=self.sigma_screen, threshold=self.threshold, delta=self.planned_delta,
            release=self.release,
            **_set_options(n_neighbors=self.neighbors, sampling_rate=self.sampling_rate),
        )  # fmt: skip


def _set_options(**options: float | None) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LabelOptions(LabellerOptions):
    """The same for a single round."""

    release: Annotated[str, Option(help="What to release: votes, or label alone.")] = "votes"
    model_share: Annotated[
        str | None,
        Option(help="Share of each budget that trains a private model, 0 for none. Default: auto."),
    ] = None


@dataclass(frozen=True, slots=True)
class StudentOptions:
    """How a student is trained, and where it is written."""

    out: Annotated[Path, Option(help="File for the student. You may publish it.")]
    onnx: Annotated[Path | None, Option(help="Also write the student as ONNX.")] = None
    method: Annotated[str, Option(help="How it learns: plain, vat or uda.")] = "vat"
    network: Annotated[
        str | None, Option(help="small or deep for images; mlp, wide or kernel for vectors.")
    ] = None
    augmentation: Annotated[str, Option(help="none, digits or clothes.")] = "none"
    steps: Annotated[
        int | None,
        Option(help="Training steps per round. Default: 800; 1600 for digits with soft labels."),
    ] = None
    overlapping: Overlapping = False

    def recipe(self, dimensions: int, seed: int, *, released: bool = False) -> Recipe:
        """Return the recipe that options describe, and what fits where they are silent.

        `released`: whether a private model's soft labels are there to learn from.
        """
        from vicinal.students.training import Recipe, for_digits, for_overlapping

        method, augmentation, network = self.method, self.augmentation, self.network or "small"
        if self.overlapping and self.method != "uda":
            raise InvalidInput("The option --overlapping needs --method uda.")
        if dimensions == 2:
            if self.method == "uda":
                raise InvalidInput("Vectors cannot be augmented: use --method vat or plain.")
            augmentation = "none"
            if network not in ("mlp", "wide", "kernel"):
                network = "kernel" if released else "mlp"
        if network == "kernel":
            method = "plain"
        # ONNX has no histograms of gradients, of which images' second student is made.
        fits = network == "kernel" if dimensions == 2 else self.onnx is None
        ensemble = released and fits
        steps = self.steps or 800
        recipe = Recipe(method, network, augmentation, steps, ensemble=ensemble, seed=seed)
        if released and self.network is None and augmentation == "digits" and not self.overlapping:
            deep = for_digits(recipe)
            recipe = replace(deep, steps=self.steps or deep.steps)
        return for_overlapping(recipe) if self.overlapping else recipe

    @property
    def outputs(self) -> dict[str, Path | None]:
        """What is written, by the names of options."""
        return {"out": self.out, "onnx": self.onnx}

    def write(self, trained: Student) -> dict[str, str | None]:
        """Write a student, and perhaps its ONNX form; return where, for JSON."""
        from vicinal.students.student import save, save_onnx

        save(trained, self.out)
        if self.onnx is not None:
            save_onnx(trained, self.onnx)
        return {"out": str(self.out), "onnx": None if self.onnx is None else str(self.onnx)}


@grouped
def label(
    *,
    task: TaskOptions,
    out: Annotated[Path, Option(help="npz file for the answers. You may publish it.")],
    queries: Annotated[
        int | None, Option(help="How many examples to label. Default: 30 % of them.")
    ] = None,
    choice: LabelOptions,
    dry_run: DryRun = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Label public examples by the votes of private records.

    The price is known before the first query and never exceeds epsilon. Answers and charges are on
    disk before they are used, so after a crash you repeat the command, and nothing is paid twice.
    """
    from vicinal.labelling import loop
    from vicinal.labelling.answers import save_answers
    from vicinal.labelling.journal import FileJournal
    from vicinal.labelling.plan import LabellingPlan, Round, default_plan
    from vicinal.reports.outcomes import ClassFigures

    check_outputs({"out": out}, task.inputs)
    names, dataset, pool, truth = task.read()
    size = queries or default_plan(1, len(pool)).queries
    plan = LabellingPlan((Round(size, 1.0),), seed)
    answering = choice.labeller_of(dataset, names, plan)
    labelling_task = _labelling_task(dataset, pool)
    if dry_run:
        _show_plan(answering, plan, labelling_task, truth, json=json)
        return
    with show_progress_bars(silent=json) as begin, FileJournal(task.folder) as journal:
        asked_round, selected = loop.label(labelling_task, answering, plan, journal, begin)
    answers = _released(answering, asked_round, selected)
    save_answers(answers, out)
    scores = None
    if truth is not None:
        scores = ClassFigures.of(answers.labels, truth[answers.rows], names)
    by_name = {str(name): int((answers.labels == name).sum()) for name in answers.classes}
    result = {
        "queries": len(asked_round.queries),
        "answered": len(answers.rows),
        "kept": int(answers.selected.sum()),
        "answers_by_class": by_name,
        "guarantee": answers.guarantee,
        "figures": scores and scores.to_dict(),
        "out": str(out),
    }
    shares = ", ".join(f"{name} {size:,}" for name, size in by_name.items())
    lines = [
        (
            f"{result['queries']:,} queries, {result['answered']:,} answered, "
            f"{result['kept']:,} kept for training. Wrote {out}"
        ),
        f"Answers by class: {shares}",
        *([] if scores is None else scores.lines()),
        *("", in_paragraphs(answers.guarantee["text"])),
    ]
    echo(as_json(result) if json else "\n".join(lines))


@grouped
def student(
    answers: Annotated[Path, Argument(help="File that `vicinal label` wrote.")],
    *,
    public: Public,
    options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a student on released answers.

    It reads nothing private. The student's file holds the guarantee of the answers.
    """
    import numpy as np

    from vicinal.labelling.answers import load_answers
    from vicinal.reports.outcomes import ClassFigures
    from vicinal.students.learner import train_student

    check_outputs(options.outputs, {"ANSWERS": answers, "public": public})
    given, dataset = load_answers(answers), _load(public)
    names, pool, soft = given.classes, np.asarray(dataset.features), given.soft_labels
    truth = _truth_of(dataset, names)
    recipe = options.recipe(pool.ndim, seed, released=soft is not None)
    recipe = recipe if soft is not None else replace(recipe, soft_share=None)
    rows, labels = given.rows[given.selected], given.labels[given.selected]
    with show_progress_bars(silent=json) as begin:
        learns_soft = soft is not None and bool(recipe.soft or recipe.ensemble)
        step = begin("student", recipe.steps)
        trained = train_student(pool, rows, labels, names, recipe, step, soft)
    trained = replace(trained, guarantee=given.guarantee)
    places = options.write(trained)
    agreement = ClassFigures.of(trained.predict(pool[rows]), labels, names)
    scores = None if truth is None else _student_figures(trained, pool, truth, given.rows)
    result = {
        "answers": len(rows),
        "soft_labels": len(pool) if learns_soft else 0,
        "agreement": agreement.to_dict(),
        "figures": scores and scores.to_dict(),
        **places,
        "guarantee": given.guarantee,
    }
    lines = [
        *([f"Also learnt from soft labels of {len(pool):,} public examples."] * learns_soft),
        f"Trained on {len(rows):,} answers. How often it agrees with them:",
        *agreement.lines(),
        *([] if scores is None else ["On examples that were not queried:", *scores.lines()]),
        f"Student    {places['out']}",
        *([] if places["onnx"] is None else [f"ONNX       {places['onnx']}"]),
        *("", in_paragraphs(given.guarantee["text"])),
    ]
    echo(as_json(result) if json else "\n".join(lines))


@grouped
def transfer(
    *,
    task: TaskOptions,
    rounds: Annotated[int, Option(help="Rounds of labelling and training.", min=1)] = 2,
    choice: LabellerOptions,
    dry_run: DryRun = False,
    options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Label public examples and train a student, in rounds.

    Each round uses the last student's features. One budget pays for all of them, and the price is
    known before the first query. After a crash, repeat the command. The student carries the
    guarantee of the whole run, and you may publish it.
    """
    from vicinal.labelling import loop
    from vicinal.labelling.journal import FileJournal
    from vicinal.labelling.plan import default_plan
    from vicinal.reports.text import format_duration
    from vicinal.students.learner import StudentLearner
    from vicinal.students.student import load

    start = time.perf_counter()
    check_outputs(options.outputs, task.inputs)
    names, dataset, pool, truth = task.read()
    overlapping = options.overlapping
    plan = default_plan(rounds, len(pool), seed=seed, overlapping=overlapping)
    answering = choice.labeller_of(dataset, names, plan)
    labelling_task = _labelling_task(dataset, pool)
    if dry_run:
        _show_plan(answering, plan, labelling_task, truth, json=json)
        return
    examples = labelling_task.pool
    learner = StudentLearner(names, [options.recipe(examples.ndim, seed)])
    with show_progress_bars(silent=json) as begin, FileJournal(task.folder) as journal:
        outcome = loop.transfer(labelling_task, answering, learner, plan, journal, begin)
        final = load(journal.folder / f"student-{rounds}.pt")
    places = options.write(final)
    figures_of = [] if truth is None else _figures_of_rounds(outcome, final, examples, truth)
    asked = zip(outcome.rounds, outcome.selected, plan.rounds, strict=True)
    result: dict[str, Any] = {
        "rounds": [
            {"queries": len(one.labels), "kept": len(selected), "share_of_budget": part.share}
            for one, selected, part in asked
        ],
        "guarantee": outcome.guarantee.to_dict(),
        "seconds": round(time.perf_counter() - start, 1),
        "version": __version__,
        "figures": {name: one.to_dict() for name, one in figures_of},
        **places,
    }
    lines = [
        f"Round {number}: {part['queries']:,} queries with {part['share_of_budget']:.0%} of "
        f"each budget, {part['kept']:,} answers kept"
        for number, part in enumerate(result["rounds"], 1)
    ]
    for name, one in figures_of:
        lines += ["", f"{name[0].upper()}{name[1:]}:", *one.lines()]
    lines += [f"Student: {places['out']}, after {format_duration(result['seconds'])}"]
    lines += ["", in_paragraphs(outcome.guarantee)]
    echo(as_json(result) if json else "\n".join(lines))


def _load(path: Path) -> Dataset:
    from vicinal.datasets.tables import load_table

    if path.suffix != ".npz":
        raise InvalidInput(f"The file {path} must be an npz file.")
    return load_table(path)


def _truth_of(pool: Dataset, names: Sequence[Any]) -> AnyArray | None:
    """Return the public examples' own labels, if the file has some; nothing is learnt from them."""
    import numpy as np

    from vicinal import checks

    if pool.labels is None:
        return None
    classes = np.asarray(names)
    try:
        return np.asarray(classes[checks.label_indices(pool.labels, classes)])
    except InvalidInput:
        raise InvalidInput(
            "The y in the 'public' option's file must hold class names, because answers are "
            "compared with it. Name all classes, or leave y out of the file."
        ) from None


def _labelling_task(dataset: Dataset, pool: Dataset) -> LabellingTask:
    import numpy as np

    from vicinal.labelling.loop import LabellingTask

    records, public = np.asarray(dataset.features), np.asarray(pool.features)
    return LabellingTask(records, public, _extractor_of(records))


def _extractor_of(examples: AnyArray) -> FeatureExtractor:
    from sklearn.preprocessing import FunctionTransformer

    from vicinal.features.hog import HOGFeatures

    return HOGFeatures(n_jobs=-1) if examples.ndim > 2 else FunctionTransformer()


def _released(
    labeller: IndKNNLabeller | FixedPlanLabeller, asked_round: AskedRound, selected: AnyArray
) -> ReleasedLabels:
    """Return answers as they may be published; queries without an answer are left out."""
    import numpy as np

    from vicinal.labelling.answers import ReleasedLabels
    from vicinal.labelling.labellers import ABSTAINED

    chosen = np.zeros(len(asked_round.labels), dtype=bool)
    chosen[selected] = True
    answered = asked_round.labels != ABSTAINED
    return ReleasedLabels(
        asked_round.queries[answered],
        labeller.classes[asked_round.labels[answered]],
        None if asked_round.margins is None else asked_round.margins[answered],
        chosen[answered],
        tuple(labeller.classes.tolist()),
        labeller.guarantee().to_dict(),
        asked_round.soft_labels,
    )


def _student_figures(
    trained: Student, pool: AnyArray, truth: AnyArray, queried: AnyArray
) -> ClassFigures:
    """Return how good a student is on public examples that nobody was asked about."""
    import numpy as np

    from vicinal.reports.outcomes import ClassFigures

    others = np.setdiff1d(np.arange(len(pool)), queried)
    answers = trained.predict(pool[others])
    return ClassFigures.of(answers, truth[others], trained.classes)


def _figures_of_rounds(
    outcome: TransferResult, final: Student, pool: AnyArray, truth: AnyArray
) -> list[tuple[str, ClassFigures]]:
    """Return how good the answers of each round and the student are, by the pool's own labels."""
    import numpy as np

    from vicinal.labelling.labellers import ABSTAINED
    from vicinal.reports.outcomes import ClassFigures

    names, named = np.array(final.classes), []
    for number, one in enumerate(outcome.rounds, 1):
        answered = one.labels != ABSTAINED
        rows, labels = one.queries[answered], names[one.labels[answered]]
        figures = ClassFigures.of(labels, truth[rows], final.classes)
        named.append((f"answers of round {number}", figures))
    queried = np.concatenate([one.queries for one in outcome.rounds])
    title = "the student, on examples that were not queried"
    return [*named, (title, _student_figures(final, pool, truth, queried))]


def _show_plan(
    labeller: IndKNNLabeller | FixedPlanLabeller,
    plan: LabellingPlan,
    task: LabellingTask,
    truth: AnyArray | None,
    *,
    json: bool,
) -> None:
    """Print what is known before the first query: rounds, releases, guarantee, outlook."""
    from vicinal.labelling.labellers import IndKNNLabeller

    price: dict[str, Any] = {"rounds": plan.to_dict()["rounds"]}
    price["guarantee"] = labeller.guarantee().to_dict()
    queries = [f"{part['queries']:,}" for part in price["rounds"]]
    lines = [f"Queries in each round: {', '.join(queries)}. No query was sent."]
    if isinstance(labeller, IndKNNLabeller):
        points = task.extractor.transform(task.pool)
        lines += ["", in_paragraphs(price["guarantee"]["text"])]
        show_outlook(labeller.plan(plan.rounds[0]), points, truth, costs=lines, json=json)
        return
    price["plan"] = labeller.plan()
    for release in price["plan"]["releases"]:
        numbers = {name: v for name, v in release.items() if isinstance(v, int | float)}
        listed = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
        lines.append(f"{release['kind']}: {listed}")
    lines += ["", in_paragraphs(price["guarantee"]["text"])]
    echo(as_json(price) if json else "\n".join(lines))
