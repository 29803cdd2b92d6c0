"""`coverage-worlds` and `coverage-sets`: how often certified sets cover, and their size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments.commands.options import Runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from experiments.coverage.set_sizes import AnsweredOutcomes

_N_PUBLIC = 300
"""Public rows of every data set."""


def coverage_worlds(
    worlds: Annotated[int, typer.Option(help="Simulated worlds of each setting.", min=10)] = 10_000,
) -> None:
    """Print how often certified thresholds cover too little, also when outcomes are shifted."""
    from experiments.coverage.worlds import format_worlds, simulate_worlds

    typer.echo(format_worlds(list(simulate_worlds(worlds))))


def coverage_sets(
    train: Annotated[
        Path | None, typer.Option(help="npz of features x and labels y, played as private.")
    ] = None,
    test: Annotated[
        Path | None, typer.Option(help="The same, for public rows, queries and outcomes.")
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the data of --train.")] = "text",
    group: Annotated[str, typer.Option(help="Tables without --train: report or tuning.")] = (
        "report"
    ),
    epsilon: Annotated[str, typer.Option(help="Epsilons, by commas.")] = ".5,1",
    outcomes: Annotated[str, typer.Option(help="Known outcomes, by commas.")] = "300,1000,5000",
    tables: Annotated[int, typer.Option(help="Largest number of tables.", min=1)] = 5,
    runs: Runs = 20,
) -> None:
    """Print coverage and size of sets on text or tables, beside conformal sets without noise."""
    from experiments.coverage.set_sizes import average_data_sets, format_sizes, measure_sets

    epsilons = [*(float(part) for part in epsilon.split(",")), math.inf]
    numbers = tuple(int(part) for part in outcomes.split(","))
    if train is not None and test is not None:
        answered = _answer_features(train, test, name, epsilons)
    else:
        answered = _answer_tables(group, epsilons, min(numbers) + 300, tables)
    rows = [row for answers in answered for row in measure_sets(answers, numbers, runs)]
    if len({row.data for row in rows}) > 1:
        rows += average_data_sets(rows)
    typer.echo(format_sizes(rows))


def _answer_features(
    train: Path, test: Path, name: str, epsilons: Sequence[float]
) -> Iterator[AnsweredOutcomes]:
    """Yield answers to the test rows beyond the first, which are public, for each epsilon.

    `train`, `test`: npz files of features x (n, d) and labels y (n,). `name`: of the data.
    `epsilons`: infinite for logistic regression without privacy.
    """
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from experiments.coverage.set_sizes import DELTA, AnsweredOutcomes
    from vicinal import IndKNNClassifier

    with np.load(train) as private, np.load(test) as others:
        rows, labels = private["x"].astype(np.float64), private["y"]
        public, queries = np.split(others["x"].astype(np.float64), [_N_PUBLIC])
        truth = others["y"][_N_PUBLIC:]
    classes, truth_indices = np.unique(truth, return_inverse=True)
    for epsilon in epsilons:
        model: Any
        if math.isinf(epsilon):
            model = LogisticRegression(max_iter=1000).fit(rows, labels)
        else:
            model = IndKNNClassifier(
                classes, epsilon, delta=DELTA, n_queries=len(queries), n_records=len(rows),
                simulation_seed=0,
            )  # fmt: skip
            model.fit(rows, labels, np.arange(len(rows)), public)
        yield AnsweredOutcomes(name, epsilon, model.predict_proba(queries), truth_indices)


def _answer_tables(
    group: str, epsilons: Sequence[float], min_queries: int, max_tables: int
) -> Iterator[AnsweredOutcomes]:
    """Yield answers to the queries of the largest tables of classes, for each epsilon.

    `group`: of the report set. `min_queries`: smallest number of queries of a table. Epsilon is
    infinite for logistic regression without privacy.
    """
    from experiments.coverage.set_sizes import AnsweredOutcomes
    from experiments.report_set.data import MOST_QUERIES, Split, questions
    from experiments.report_set.methods import Plan, linear, ours

    splits = {
        question.name: Split.of(question, 0, _N_PUBLIC)
        for question in questions(group)
        if question.of_classes
    }
    eligible = [name for name, split in splits.items() if len(split.queries) >= min_queries]
    largest = sorted(eligible, key=lambda name: -len(splits[name].private))[:max_tables]
    for name in largest:
        split = splits[name]
        for epsilon in epsilons:
            plan = Plan(split, 0.0 if math.isinf(epsilon) else epsilon, MOST_QUERIES, 0)
            probabilities = linear(plan) if math.isinf(epsilon) else ours(plan)
            yield AnsweredOutcomes(name, epsilon, probabilities, split.answers[split.queries])
