"""`vicinal label`, `student` and `transfer`: a publishable model from private records.

Private records answer queries with noise. The queries are public examples, and their answers train
a student, which needs no private records any more. True labels of the public examples, if the file
has them, are only compared with the answers. Texts, rows of a table with a schema and images with
`--features image` are converted to vectors first, and the student's file names their extractor.

Shared options: `public`, file of public examples; `label`, its column of labels; `seed`, of the
order of queries and of training; `dry_run`, show costs and change nothing; `json`, print one JSON
object. Groups of options are `task_options`, `feature_options`, `labeller_options` and
`student_options`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from vicinal import __version__
from vicinal.accounting.guarantee import format_rounded_up
from vicinal.cli import output, records
from vicinal.cli._outlook import print_plan_report
from vicinal.cli._reference import ExtractorOptions, PublicLabels, ReferenceOptions
from vicinal.cli.options import (
    AcceptWeakPlan,
    Data,
    DryRun,
    IdsDiffer,
    Json,
    Subject,
    expand_groups,
    parse_class_names,
)
from vicinal.cli.output import as_json, check_outputs, echo, format_guarantee, show_progress_bars
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.store import input_files

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray
    from vicinal.datasets.dataset import Dataset
    from vicinal.labelling.answers import ReleasedLabels
    from vicinal.labelling.journal import RoundAnswers
    from vicinal.labelling.labellers import IndKNNLabeller, PrivateKNNLabeller
    from vicinal.labelling.loop import LabellingTask, TransferResult
    from vicinal.labelling.plan import LabellingPlan, Round
    from vicinal.reports.outcomes import AccuracyByClass
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.students.student import Student
    from vicinal.students.training import Recipe

IND_KNN = "ind-knn"
PRIVATE_KNN = "private-knn"

_VECTOR_EXTRACTORS = ("image", "table", "text")
"""Kinds of extractors whose vectors are a student's inputs, which are else pixels or columns."""

Seed = Annotated[int, Option(help="Seed for the order of queries and for training. Public.")]
Overlapping = Annotated[
    bool, Option("--overlapping", help="Use the recipe for classes that overlap in feature space.")
]
Public = Annotated[Path, Option(help="Public examples, in a file like that of the records.")]
Label = Annotated[str | None, Option(help="Column of labels; public ones only for comparison.")]

_OPTIONS_OF_IMAGES = dict.fromkeys(
    ("small", "deep"), ("method", "augmentation", "steps", "overlapping")
)
"""Networks of images, and the options of training that affect them."""

_OPTIONS_OF_VECTORS = {
    **dict.fromkeys(("mlp", "wide"), ("method", "steps")),
    # Only its head is trained, on a convex loss, by a fixed number of iterations.
    "kernel": (),
}
"""Networks of vectors, and the options of training that affect them."""

_LABELLER_OF_OPTION = {
    **dict.fromkeys(("records", "records_per_subject"), IND_KNN),
    **dict.fromkeys(("neighbors", "sampling_rate"), PRIVATE_KNN),
    **dict.fromkeys(("sigma_votes", "sigma_screen", "threshold"), PRIVATE_KNN),
}
"""Options that only one labeller accepts, and that labeller."""


class TaskData(NamedTuple):
    """Content of the files of a labelling task."""

    classes: list[Any]  # class names
    private: Dataset  # raw private records, with labels and perhaps subject ids
    task: LabellingTask  # images or vectors of both files, and the extractor of their features
    true_labels: PublicLabels | None  # those of the public examples, if the file has them
    extractor: StoreExtractor  # computes the examples of `task` from raw rows
    public_digest: str  # see _digest_public


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Files of a labelling task: private records, public examples, and the folder of the run."""

    private: Data
    public: Public
    classes: Annotated[
        list[str], Option(help="All class names: '0-9' or 'cat,dog,horse'; or repeat the option.")
    ]
    folder: Annotated[Path, Option(help="Private folder of the run. Repeat to resume it.")]
    label: Label = None
    subject: Subject = None
    ids_differ: IdsDiffer = False

    @property
    def inputs(self) -> dict[str, Path | None]:
        """Paths that the command reads, by option."""
        return {"private": self.private, "public": self.public, "folder": self.folder}

    def read(self, feature_options: ExtractorOptions, *, silent: bool) -> TaskData:
        """Read the files, compute the examples and return both; no progress bars if `silent`."""
        from sklearn.preprocessing import FunctionTransformer

        from vicinal import checks
        from vicinal.features.hog import HOGFeatures
        from vicinal.labelling.loop import LabellingTask
        from vicinal.ledger.id_encoding import find_similar_ids
        from vicinal.store.records import refuse_similar_ids

        names = parse_class_names(self.classes)
        ReferenceOptions(self.public).check(feature_options.features, self.private)
        extractor = feature_options.build_extractor(
            self.public, [self.label, self.subject], self.private
        )
        with output.print_warnings(), output.show_announced_progress(silent=silent):
            public, true_labels = _read_public(self.public, extractor, self.label, names)
            dataset = input_files.read_records(self.private, extractor, self.label, self.subject)
            records.require_labels(dataset)
            if dataset.subjects is None:
                output.print_note(f"{records.NO_SUBJECT_NOTE}.")
            elif not self.ids_differ:
                ids = checks.check_subject_ids("subject", dataset.subjects)
                refuse_similar_ids(len(find_similar_ids(ids)))
            pool = _compute_examples(self.public, extractor, public, is_public=True)
            examples = _compute_examples(self.private, extractor, dataset.features)
        to_features = HOGFeatures(n_jobs=-1) if pool.ndim > 2 else FunctionTransformer()
        task = LabellingTask(examples, pool, to_features)
        digest = _digest_public(extractor, public, pool)
        return TaskData(names, dataset, task, true_labels, extractor, digest)


def _read_public(
    path: Path, extractor: StoreExtractor, label: str | None, names: Sequence[Any]
) -> tuple[Any, PublicLabels | None]:
    """Return the raw public examples in a file, and their labels, None if unlabelled.

    `label`: column of the labels, which a public table and single rows may lack. `names`: the class
    names.
    """
    import numpy as np

    from vicinal import checks

    reference = ReferenceOptions(path)
    if reference.public_has_column(label, extractor):
        rows, true_labels = reference.read_rows(extractor, label)
    else:
        public = input_files.read_records(path, extractor, public=True)
        rows, labels = public.features, public.labels
        true_labels = None if labels is None else PublicLabels.from_all_rows(labels)
    if true_labels is None:
        return rows, None
    classes = np.asarray(names)
    try:
        class_names = classes[checks.find_label_indices(true_labels.labels, classes)]
        return rows, replace(true_labels, labels=class_names)
    except InvalidInput:
        raise InvalidInput(
            "The labels in the 'public' option's file must hold class names, because answers are "
            "compared with them. Name all classes, or leave the labels out of the file."
        ) from None


def _compute_examples(
    path: Path, extractor: StoreExtractor, rows: Any, *, is_public: bool = False
) -> AnyArray:
    """Return the inputs of a student: images (n, h, w) or (n, h, w, 3), or vectors (n, d).

    They are the raw `rows`, or their vectors if the extractor is a network or encodes a table.
    `path`: the file of the rows, for messages. `is_public`: whether messages may list rows.
    """
    import numpy as np

    from vicinal.features.fixed import convert_to_pixels

    with input_files.add_file_to_errors(path, public=is_public):
        if extractor.kind in _VECTOR_EXTRACTORS:
            return np.asarray(extractor.transform(rows))
        if extractor.kind == "columns":
            return np.asarray(rows)
        pixels = convert_to_pixels(
            rows, "The images must all have the same height and width. Use --features image."
        )
        extractor.transform(pixels[:1])  # refuses vectors, and images that are too small
        return pixels


def _digest_public(extractor: StoreExtractor, public: Any, pool: AnyArray) -> str:
    """Return the SHA-256 of public examples, in hexadecimal digits.

    `public`: the raw rows, texts or images. `pool`: their vectors (m, d) of `extractor`, or pixels
    (m, ...). The inputs of a network are digested: the last bits of its vectors vary by machine.
    """
    from vicinal.labelling.answers import compute_examples_digest

    return compute_examples_digest(public if extractor.kind in ("image", "text") else pool)


@dataclass(frozen=True, slots=True)
class LabellerOptions:
    """Labeller of public examples, with its parameters; those of the other labeller are refused."""

    labeller: Annotated[str, Option(help="Algorithm: ind-knn or private-knn.")] = IND_KNN
    epsilon: Annotated[float, Option(help="Upper bound on the privacy loss of the run.")] = 1.0
    delta: Annotated[
        float | None,
        Option(help="Probability that the bound fails. Default: 1e-5, or .1/records if less."),
    ] = None
    records: Annotated[int | None, Option(help="Public number of records, else estimated.")] = None
    records_per_subject: Annotated[
        float | None, Option(help="Public mean number of records per subject. Default: 1.")
    ] = None
    neighbors: Annotated[int | None, Option(help="Number of voting records. Default: 300.")] = None
    sampling_rate: Annotated[
        float | None, Option(help="Probability that a subject is sampled. Default: .15.")
    ] = None
    sigma_votes: Annotated[float | None, Option(help="Noise on votes. Default: smallest.")] = None
    sigma_screen: Annotated[float | None, Option(help="Noise of screening. Default: none.")] = None
    threshold: Annotated[float | None, Option(help="Threshold of the screening.")] = None
    yes: AcceptWeakPlan = False

    @property
    def planned_delta(self) -> float:
        """Delta of the whole run: --delta, or else the default for the public number of records."""
        from vicinal.planning.plan import choose_default_delta

        return choose_default_delta(self.records) if self.delta is None else self.delta

    def __post_init__(self) -> None:
        """Raise InvalidInput for contradictory options, and PrivacyRefused for a weak guarantee."""
        from vicinal import checks
        from vicinal.planning.guarantees import refuse_weak_plan

        checks.check_choice("labeller", self.labeller, (IND_KNN, PRIVATE_KNN))
        checks.check_real("epsilon", self.epsilon, above=0)
        if not self.yes:
            refuse_weak_plan(self.epsilon, self.planned_delta, self.records)
        for name, labeller in _LABELLER_OF_OPTION.items():
            if getattr(self, name) is not None and self.labeller != labeller:
                option = "--" + name.replace("_", "-")
                raise InvalidInput(f"The option {option} is for {labeller} only.")
        if (self.sigma_screen is None) != (self.threshold is None):
            raise InvalidInput("Screening needs both --sigma-screen and --threshold.")

    def build_labeller(
        self,
        data: TaskData,
        plan: LabellingPlan,
        release: str = "votes",
        model_share: str | None = None,
    ) -> IndKNNLabeller | PrivateKNNLabeller:
        """Return the labeller that answers from the private records of a task.

        `plan`: rounds and number of queries of the run; used for Private-kNN only. `release`:
        "votes" or "label". `model_share`: share of budgets that trains a private model of Ind-KNN,
        None for the automatic one. Raises PrivacyRefused if the given noise costs more than
        epsilon.
        """
        from vicinal.labelling.labellers import IndKNNLabeller

        labels = records.require_labels(data.private)
        if self.labeller == PRIVATE_KNN:
            return self._build_private_knn(data, plan, release)
        share: Any = "auto" if model_share is None else model_share
        with suppress(ValueError):  # the labeller refuses a share that is no number
            share = float(share)
        return IndKNNLabeller(
            data.classes,
            labels,
            data.private.subjects,
            epsilon=self.epsilon,
            delta=self.planned_delta,
            release=release,
            n_records=self.records,
            model_share=share,
            **_select_given(records_per_subject=self.records_per_subject),
        )

    def _build_private_knn(
        self, data: TaskData, plan: LabellingPlan, release: str
    ) -> PrivateKNNLabeller:
        """Return the Private-kNN labeller, with the arguments of :meth:`build_labeller`.

        Its noise on votes is the option's, or the least that keeps epsilon.
        """
        from vicinal.labelling.labellers import PrivateKNNLabeller
        from vicinal.labelling.plan import compute_round_noise, find_smallest_noise
        from vicinal.predictors.private_knn import PrivateKNNClassifier

        options = _select_given(n_neighbors=self.neighbors, sampling_rate=self.sampling_rate)

        def create_labeller(sigma: float) -> PrivateKNNLabeller:
            """Return the labeller with standard deviation `sigma` of the noise on votes."""

            def create_classifier(planned_round: Round) -> PrivateKNNClassifier:
                """Return the classifier of `planned_round`, with noise for its budget share."""
                return PrivateKNNClassifier(
                    data.classes,
                    sigma_votes=compute_round_noise(planned_round, plan, sigma),
                    sigma_screen=self.sigma_screen,
                    threshold=self.threshold,
                    delta=self.planned_delta,
                    release=release,
                    **options,
                )

            labels: Any = data.private.labels
            return PrivateKNNLabeller(create_classifier, plan, labels, data.private.subjects)

        if self.sigma_votes is None:
            min_sigma = find_smallest_noise(lambda s: create_labeller(s).epsilon(), self.epsilon)
            return create_labeller(min_sigma)
        labeller = create_labeller(self.sigma_votes)
        cost = labeller.epsilon()
        if not cost <= self.epsilon:
            raise PrivacyRefused(
                f"The plan costs epsilon {format_rounded_up(cost)}, which is above --epsilon "
                f"{self.epsilon:g}. "
                "Use more noise or a larger epsilon, or leave --sigma-votes out."
            )
        return labeller


def _select_given(**options: float | None) -> dict[str, Any]:
    """Return the `options` with a value, by name."""
    return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StudentOptions:
    """Training of a student, and its output files."""

    out: Annotated[Path, Option(help="File for the student. You may publish it.")]
    onnx: Annotated[Path | None, Option(help="Also write the student as ONNX.")] = None
    method: Annotated[
        str | None,
        Option(help="plain or vat; for images also uda. Default: vat. Not for the network kernel."),
    ] = None
    network: Annotated[
        str | None,
        Option(
            help="small or deep for images; mlp, wide, kernel for vectors. Default: small or mlp; "
            "for vectors with soft labels kernel, which alone uses them."
        ),
    ] = None
    augmentation: Annotated[str | None, Option(help="For images: digits or clothes.")] = None
    steps: Annotated[
        int | None,
        Option(help="Steps per round. Default: 800, or 1600. Not for the network kernel.", min=1),
    ] = None
    overlapping: Overlapping = False

    def choose_network(self, n_dimensions: int, *, has_soft_labels: bool = False) -> str:
        """Return the name of the network to train; the arguments are those of `build_recipe`.

        Raises InvalidInput if the network does not take such examples, or if an option would have
        no effect on its training.
        """
        takes_vectors = n_dimensions == 2
        if takes_vectors and self.method == "uda":
            raise InvalidInput("Vectors cannot be augmented: use --method vat or plain.")
        default = "small"
        if takes_vectors:
            default = "kernel" if has_soft_labels else "mlp"
        network = self.network or default
        options_of_network = _OPTIONS_OF_VECTORS if takes_vectors else _OPTIONS_OF_IMAGES
        if network not in options_of_network:
            kind = "vectors" if takes_vectors else "images"
            raise InvalidInput(
                f"The --network option for {kind} must be one of "
                f"{', '.join(options_of_network)}. Got {network!r}."
            )
        applicable = options_of_network[network]
        for name in _OPTIONS_OF_IMAGES["small"]:
            is_given = getattr(self, name) not in (None, False)
            if is_given and name not in applicable:
                reason = "" if self.network else ", the default for these examples"
                remedy = "Leave the option out."
                if network == "kernel" and name in _OPTIONS_OF_VECTORS["mlp"]:
                    remedy = "Leave the option out, or use --network mlp."
                raise InvalidInput(
                    f"The --{name} option has no effect on the network {network!r}{reason}. "
                    f"{remedy}"
                )
        if self.overlapping and self.method != "uda":
            raise InvalidInput("The option --overlapping needs --method uda.")
        return network

    def build_recipe(
        self, n_dimensions: int, seed: int, *, has_soft_labels: bool = False
    ) -> Recipe:
        """Return the training recipe, with defaults that fit the data where options are missing.

        `n_dimensions`: number of axes of the array of examples; 2 for vectors. `seed`: of training.
        `has_soft_labels`: whether a private model's class probabilities were released.
        """
        from vicinal.students.training import Recipe, adapt_to_digits, adapt_to_overlapping_classes

        network = self.choose_network(n_dimensions, has_soft_labels=has_soft_labels)
        method = "plain" if network == "kernel" else self.method or "vat"
        augmentation = self.augmentation or "none"
        # The second student of images uses histograms of gradients, which ONNX lacks.
        supports_ensemble = network == "kernel" if n_dimensions == 2 else self.onnx is None
        ensemble = has_soft_labels and supports_ensemble
        steps = self.steps or 800
        recipe = Recipe(method, network, augmentation, steps, ensemble=ensemble, seed=seed)
        if self.overlapping:
            return adapt_to_overlapping_classes(recipe)
        if has_soft_labels and self.network is None and augmentation == "digits":
            deep = adapt_to_digits(recipe)
            return replace(deep, steps=self.steps or deep.steps)
        return recipe

    @property
    def outputs(self) -> dict[str, Path | None]:
        """Paths that the command writes, by option."""
        return {"out": self.out, "onnx": self.onnx}

    def write(self, student: Student, extractor: StoreExtractor) -> dict[str, str | None]:
        """Write a student, and its ONNX form if requested; return both paths by option.

        `extractor`: computed the examples on which the student was trained.
        """
        from vicinal.students.student import save, save_onnx

        if extractor.kind in _VECTOR_EXTRACTORS or extractor.columns is not None:
            student = replace(student, extractor=extractor)
        save(student, self.out)
        if self.onnx is not None:
            save_onnx(student, self.onnx)
        return {"out": str(self.out), "onnx": None if self.onnx is None else str(self.onnx)}


@expand_groups
def label(
    *,
    task_options: TaskOptions,
    feature_options: ExtractorOptions,
    out: Annotated[Path, Option(help="npz file for the answers. You may publish it.")],
    queries: Annotated[int | None, Option(help="Examples to label. Default: 30 %.")] = None,
    labeller_options: LabellerOptions,
    release: Annotated[str, Option(help="Released values: votes, or label alone.")] = "votes",
    model_share: Annotated[
        str | None, Option(help="Share of each budget for a private model; 0: none. Default: auto.")
    ] = None,
    dry_run: DryRun = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Label public examples by the votes of private records.

    The cost is known before the first query and never exceeds epsilon. Answers and charges are on
    disk before they are used. After a crash, repeat the command; nothing is paid twice.
    """
    from vicinal.labelling import loop
    from vicinal.labelling.answers import save_answers
    from vicinal.labelling.journal import FileJournal
    from vicinal.labelling.plan import LabellingPlan, Round, default_plan
    from vicinal.reports.outcomes import AccuracyByClass

    check_outputs({"out": out}, task_options.inputs | feature_options.inputs)
    if model_share is not None and labeller_options.labeller != IND_KNN:
        raise InvalidInput(f"The option --model-share is for {IND_KNN} only.")
    data = task_options.read(feature_options, silent=json)
    n_queries = queries or default_plan(1, len(data.task.pool)).queries
    plan = LabellingPlan((Round(n_queries, 1.0),), seed)
    labeller = labeller_options.build_labeller(data, plan, release, model_share)
    if dry_run:
        _show_plan(labeller, plan, data, json=json)
        return
    with (
        output.print_warnings(),
        show_progress_bars(silent=json) as begin,
        FileJournal(task_options.folder) as journal,
    ):
        round_answers, selected = loop.label(data.task, labeller, plan, journal, begin)
    answers = _collect_answers(labeller, round_answers, selected)
    columns = None if data.extractor.columns is None else tuple(data.extractor.columns)
    answers = replace(answers, examples_digest=data.public_digest, columns=columns)
    save_answers(answers, out)
    figures = None
    if data.true_labels is not None:
        is_labelled, truth = data.true_labels.get_labels(answers.rows)
        figures = AccuracyByClass.from_answers(answers.labels[is_labelled], truth, data.classes)
    count_of_class = {str(name): int((answers.labels == name).sum()) for name in answers.classes}
    result = {
        "queries": len(round_answers.queries),
        "answered": len(answers.rows),
        "kept": int(answers.selected.sum()),
        "answers_by_class": count_of_class,
        "guarantee": answers.guarantee,
        "figures": figures and figures.to_dict(),
        "out": str(out),
    }
    counts = ", ".join(f"{name} {count:,}" for name, count in count_of_class.items())
    lines = [
        (
            f"{result['queries']:,} queries, {result['answered']:,} answered, "
            f"{result['kept']:,} kept for training. Wrote {out}"
        ),
        f"Answers by class: {counts}",
        *([] if figures is None else figures.format_lines()),
        *("", format_guarantee(answers.guarantee["text"])),
    ]
    echo(as_json(result) if json else "\n".join(lines))


@expand_groups
def student(
    answers: Annotated[Path, Argument(help="File that `vicinal label` wrote.")],
    *,
    public: Public,
    label: Label = None,
    feature_options: ExtractorOptions,
    student_options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a student on released answers.

    It reads no private data. The public examples and their features must be those of `label`;
    columns of numbers are read from the answers. The student's file holds their guarantee.
    """
    from vicinal.labelling.answers import load_answers
    from vicinal.reports.outcomes import AnswerCounts
    from vicinal.students.learner import train_student

    inputs = {"ANSWERS": answers, "public": public, **feature_options.inputs}
    check_outputs(student_options.outputs, inputs)
    released = load_answers(answers)
    soft_labels = released.soft_labels
    with output.print_warnings(), output.show_announced_progress(silent=json):
        pool, true_labels, extractor = _read_answered_examples(
            public, label, feature_options, released
        )
    recipe = student_options.build_recipe(pool.ndim, seed, has_soft_labels=soft_labels is not None)
    if soft_labels is None:
        recipe = replace(recipe, soft_share=None)
    rows = released.rows[released.selected]
    labels = released.labels[released.selected]
    with show_progress_bars(silent=json) as begin:
        uses_soft_labels = soft_labels is not None and bool(recipe.soft_weight or recipe.ensemble)
        step = begin("student", recipe.steps)
        trained = train_student(pool, rows, labels, released.classes, recipe, step, soft_labels)
    trained = replace(trained, guarantee=released.guarantee)
    paths = student_options.write(trained, extractor)
    agreement = AnswerCounts.from_answers(trained.predict(pool[rows]), labels)
    figures = None
    if true_labels is not None:
        figures = _evaluate_student(trained, pool, true_labels, released.rows)
    result = {
        "answers": len(rows),
        "soft_labels": len(pool) if uses_soft_labels else 0,
        # Without an accuracy or an interval, which readers would take for those of new examples.
        "agreement": {"matches": agreement.correct, "answers": agreement.total},
        "figures": figures and figures.to_dict(),
        **paths,
        "guarantee": released.guarantee,
    }
    lines = []
    if soft_labels is not None:
        reason = "the network " + recipe.network if pool.ndim == 2 else "--onnx"
        lines.append(
            f"Trained on soft labels of {len(pool):,} public examples."
            if uses_soft_labels
            else f"The soft labels in the answers are not used, because of {reason}."
        )
    lines.append(
        f"The student agrees with {agreement.correct:,} of {agreement.total:,} answers that it was "
        "trained on. This is not its accuracy."
    )
    if figures is None:
        lines.append("To measure that, give labels of public examples that were not queried.")
    else:
        lines += ["On examples that were not queried:", *figures.format_lines()]
    lines.append(f"Student    {paths['out']}")
    if paths["onnx"] is not None:
        lines.append(f"ONNX       {paths['onnx']}")
    lines += ["", format_guarantee(released.guarantee["text"])]
    echo(as_json(result) if json else "\n".join(lines))


def _read_answered_examples(
    path: Path, label: str | None, feature_options: ExtractorOptions, answers: ReleasedLabels
) -> tuple[AnyArray, PublicLabels | None, StoreExtractor]:
    """Return the public examples of released answers, their labels or None, and their extractor.

    Examples in the file `path` are vectors (m, d) or images (m, ...). Raises InvalidInput if the
    `answers` are about others. Columns of numbers are those of the answers unless `feature_options`
    name them. `label`: column of the labels, or None.
    """
    extractor = feature_options.build_extractor(path, [label])
    if extractor.kind == "columns" and not feature_options.columns and answers.columns:
        extractor = replace(extractor, columns=list(answers.columns))
    public, true_labels = _read_public(path, extractor, label, answers.classes)
    pool = _compute_examples(path, extractor, public, is_public=True)
    if _digest_public(extractor, public, pool) != answers.examples_digest:
        raise InvalidInput(
            "The 'public' option must name the public examples of `vicinal label`, in the same "
            "order, with the same --features, --columns and --schema. Its rows differ from those "
            "that the answers are about."
        )
    return pool, true_labels, extractor


@expand_groups
def transfer(
    *,
    task_options: TaskOptions,
    feature_options: ExtractorOptions,
    rounds: Annotated[int, Option(help="Rounds of labelling and training.", min=1)] = 2,
    labeller_options: LabellerOptions,
    dry_run: DryRun = False,
    student_options: StudentOptions,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Label public examples and train a student, in rounds.

    Each round uses the last student's features. One budget pays for all rounds, and the cost is
    known before the first query. After a crash, repeat the command. The student's file holds the
    guarantee of the whole run, and you may publish it.
    """
    from vicinal.labelling import loop
    from vicinal.labelling.journal import FileJournal
    from vicinal.labelling.plan import default_plan
    from vicinal.reports.text import format_duration
    from vicinal.students.learner import StudentLearner
    from vicinal.students.student import load

    start = time.perf_counter()
    check_outputs(student_options.outputs, task_options.inputs | feature_options.inputs)
    data = task_options.read(feature_options, silent=json)
    pool = data.task.pool
    plan = default_plan(rounds, len(pool), seed=seed, overlapping=student_options.overlapping)
    # Without a private model, because rounds change the features.
    labeller = labeller_options.build_labeller(data, plan, model_share="0")
    student_options.choose_network(pool.ndim)
    if dry_run:
        _show_plan(labeller, plan, data, json=json)
        return
    learner = StudentLearner(data.classes, [student_options.build_recipe(pool.ndim, seed)])
    with (
        output.print_warnings(),
        show_progress_bars(silent=json) as begin,
        FileJournal(task_options.folder) as journal,
    ):
        run = loop.run_labelling(data.task, labeller, learner, plan, journal, begin)
        final = load(journal.folder / f"student-{rounds}.pt")
    paths = student_options.write(final, data.extractor)
    figures_by_title = {}
    if data.true_labels is not None:
        figures_by_title = _evaluate_rounds(run, final, pool, data.true_labels)
    result: dict[str, Any] = {
        "rounds": [
            {"queries": len(done.labels), "kept": len(kept), "share_of_budget": planned.share}
            for done, kept, planned in zip(run.rounds, run.selected, plan.rounds, strict=True)
        ],
        "guarantee": run.guarantee.to_dict(),
        "seconds": round(time.perf_counter() - start, 1),
        "version": __version__,
        "figures": {title: figures.to_dict() for title, figures in figures_by_title.items()},
        **paths,
    }
    lines = [
        f"Round {number}: {facts['queries']:,} queries with {facts['share_of_budget']:.0%} of "
        f"each budget, {facts['kept']:,} answers kept"
        for number, facts in enumerate(result["rounds"], 1)
    ]
    for title, figures in figures_by_title.items():
        lines += ["", f"{title[0].upper()}{title[1:]}:", *figures.format_lines()]
    lines += [f"Student: {paths['out']}, after {format_duration(result['seconds'])}"]
    lines += ["", format_guarantee(run.guarantee)]
    echo(as_json(result) if json else "\n".join(lines))


def _collect_answers(
    labeller: IndKNNLabeller | PrivateKNNLabeller, round_answers: RoundAnswers, selected: AnyArray
) -> ReleasedLabels:
    """Return the answers of a round without abstentions, each with its class name.

    `labeller`: gives class names and the guarantee. `round_answers`: labels of all queries of the
    round, as indices of classes. `selected`: indices (k,) of the queries marked for training.
    """
    import numpy as np

    from vicinal.labelling.answers import ReleasedLabels
    from vicinal.labelling.labellers import ABSTAINED

    is_selected = np.zeros(len(round_answers.labels), dtype=bool)
    is_selected[selected] = True
    is_answered = round_answers.labels != ABSTAINED
    margins = round_answers.margins
    return ReleasedLabels(
        round_answers.queries[is_answered],
        labeller.classes[round_answers.labels[is_answered]],
        None if margins is None else margins[is_answered],
        is_selected[is_answered],
        tuple(labeller.classes.tolist()),
        labeller.guarantee().to_dict(),
        round_answers.soft_labels,
    )


def _evaluate_student(
    student: Student, public_examples: AnyArray, true_labels: PublicLabels, queried_rows: AnyArray
) -> AccuracyByClass:
    """Return the accuracy of a student on the labelled public examples that were not queried.

    `public_examples` (m, ...), `true_labels`: inputs of the student, and labels of some or all.
    `queried_rows` (k,): indices of the examples that were queried.
    """
    import numpy as np

    from vicinal.reports.outcomes import AccuracyByClass

    rows = np.setdiff1d(np.flatnonzero(true_labels.is_complete), queried_rows)
    _, truth = true_labels.get_labels(rows)
    answers = student.predict(public_examples[rows]) if len(rows) else truth
    return AccuracyByClass.from_answers(answers, truth, student.classes)


def _evaluate_rounds(
    transfer: TransferResult, final: Student, public_examples: AnyArray, true_labels: PublicLabels
) -> dict[str, AccuracyByClass]:
    """Return the accuracies of the answers of each round and of the `final` student, by title.

    Abstentions and public examples without a true label are left out. `transfer`: the answers of
    all rounds. For the other arguments see :func:`_evaluate_student`.
    """
    import numpy as np

    from vicinal.labelling.labellers import ABSTAINED
    from vicinal.reports.outcomes import AccuracyByClass

    names = np.array(final.classes)
    figures_by_title = {}
    for number, labelled in enumerate(transfer.rounds, 1):
        is_answered = labelled.labels != ABSTAINED
        is_labelled, truth = true_labels.get_labels(labelled.queries[is_answered])
        answers = names[labelled.labels[is_answered][is_labelled]]
        figures = AccuracyByClass.from_answers(answers, truth, final.classes)
        figures_by_title[f"answers of round {number}"] = figures
    queried_rows = np.concatenate([labelled.queries for labelled in transfer.rounds])
    title = "the student, on examples that were not queried"
    figures_by_title[title] = _evaluate_student(final, public_examples, true_labels, queried_rows)
    return figures_by_title


def _show_plan(
    labeller: IndKNNLabeller | PrivateKNNLabeller,
    plan: LabellingPlan,
    data: TaskData,
    *,
    json: bool,
) -> None:
    """Print the facts known before the first query: rounds, releases, guarantee and outlook."""
    from vicinal.labelling.labellers import IndKNNLabeller

    guarantee = labeller.guarantee()
    n_queries = ", ".join(f"{planned.queries:,}" for planned in plan.rounds)
    title = "Queries" if len(plan.rounds) == 1 else "Queries in each round"
    lines = [f"{title}: {n_queries}. No query was sent."]
    costs = ["", format_guarantee(guarantee)]
    if isinstance(labeller, IndKNNLabeller):
        points = data.task.extractor.transform(data.task.pool)
        round_plan = labeller.plan(plan.rounds[0])
        costs = [*lines, *costs]
        print_plan_report(
            round_plan, points, data.true_labels, costs=costs, json=json, is_store_plan=False
        )
        return
    price = {
        "rounds": plan.to_dict()["rounds"],
        "guarantee": guarantee.to_dict(),
        "plan": labeller.plan(),
    }
    for release in price["plan"]["releases"]:
        numbers = {name: value for name, value in release.items() if isinstance(value, int | float)}
        listed = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
        lines.append(f"{release['kind']}: {listed}")
    echo(as_json(price) if json else "\n".join([*lines, *costs]))
