"""`promises`: what eight methods prove of anybody, and how often an attack guesses right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.commands.methods import sources
from experiments.commands.options import OUT, AgTest, AgTrain, Out, write_csv
from vicinal.cli.output import create_output_folder, show_progress_bars, write_file

if TYPE_CHECKING:
    from vicinal.progress import Begin
    from vicinal.reports.demo import Trial

NAME = "promises"

PUBLIC = 500

HEALTH = ("id", "row", "outwork", "self")
"""Columns of the health survey that are no features: whom, where, the label, and its complement."""


def promises(
    table: Annotated[
        Path | None, typer.Option(help="German health survey, rwm5yr of COUNT, as Parquet.")
    ] = None,
    agnews_train: AgTrain = None,
    agnews_test: AgTest = None,
    records: Annotated[int, typer.Option(help="Private records.", min=500)] = 3000,
    queries: Annotated[int, typer.Option(help="Of one interaction.", min=100)] = 500,
    epsilon: Annotated[float, typer.Option(help="Of each method that has one.")] = 4.0,
    games: Annotated[int, typer.Option(help="Of each method and data set.", min=20)] = 400,
    cache: Annotated[Path | None, typer.Option(help="Folder that keeps features.")] = None,
    out: Out = OUT,
) -> None:
    """Accuracy, what is proven and what an attack reaches: MNIST, and the data that are given."""
    from experiments.accuracy.promises import drawn, measured, to_dict

    rows = []
    folder = create_output_folder(out)
    with show_progress_bars(silent=False) as begin:
        for name, trial in _trials(
            table, (agnews_train, agnews_test), cache or folder, records, queries, begin
        ):
            for row in measured(name, trial, epsilon, queries, games):
                rows.append(row)
                typer.echo(" ".join(f"{value}" for value in to_dict(row).values()), err=True)
    write_csv(folder, NAME, list(map(to_dict, rows)))
    write_file(folder / f"{NAME}.png", drawn(rows))


def _trials(
    table: Path | None, agnews: tuple[Path | None, Path | None], cache: Path, records: int,
    queries: int, begin: Begin,
) -> Iterator[tuple[str, Trial]]:  # fmt: skip
    from dataclasses import replace

    from experiments.trials import split
    from vicinal.features import PublicMap

    for source in sources(True, None, None, agnews, cache):
        data = source.load(begin)
        some = split(len(data.records), records, 0, 0).reference
        data = replace(data, records=data.records[some], labels=data.labels[some])
        parts = split(len(data.test), PUBLIC, queries, 0)
        yield source.name, data.trial(PublicMap(**data.learnt), parts)
    if table is not None:
        yield "health survey", _health(table, records, queries)


def _health(path: Path, records: int, queries: int) -> Trial:
    """Return the first year of each person: who is out of work."""
    import numpy as np
    import pyarrow.parquet as pq

    from experiments.trials import split
    from vicinal.features import TableFeatures, draft_schema
    from vicinal.reports.demo import Trial

    rows = pq.read_table(path)
    first = np.unique(rows["id"].to_numpy(), return_index=True)[1]
    order = first[np.concatenate(split(len(first), PUBLIC + queries, records, 0))]
    labels = rows["outwork"].to_numpy()[order]
    schema, _ = draft_schema(rows.drop_columns(HEALTH).take(order[:PUBLIC]))
    features = TableFeatures(schema).transform(rows.drop_columns(HEALTH).take(order))
    public, asked, private = np.split(features, [PUBLIC, PUBLIC + queries])
    _, truth, own = np.split(labels, [PUBLIC, PUBLIC + queries])
    return Trial(range(2), private, own, public, asked, truth)
