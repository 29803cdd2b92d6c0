"""What `vicinal predict` writes: a row of answers for every query, in the format of the suffix."""

from __future__ import annotations

import io
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vicinal.cli._output import write_file
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.store import Reply
    from vicinal.targets import Target

STREAM = "-"
"""Stands for standard input and output."""

FORMATS = (".csv", ".parquet", ".npy")
_MAGIC = {b"PAR1": ".parquet", b"PK\x03\x04": ".npz", b"\x1f\x8b": ".csv.gz"}
_SHOWN = 5


def check_format(out: str | None) -> None:
    """Raise InvalidInput before anything is asked if answers could not be written so."""
    if out is not None and out != STREAM and Path(out).suffix not in FORMATS:
        raise InvalidInput(f"The 'out' option must end in {', '.join(FORMATS)}, or be -.")


@contextmanager
def local_file(data: str) -> Iterator[Path]:
    """Yield the path of a file; standard input becomes one for as long as it is needed."""
    if data != STREAM:
        yield Path(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        content = _standard_input()
        suffix = next((s for magic, s in _MAGIC.items() if content.startswith(magic)), ".csv")
        path = Path(folder) / f"standard input{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except InvalidInput as error:
            raise InvalidInput(str(error).replace(f"{folder}/", "")) from None


def _standard_input() -> bytes:
    from vicinal.datasets import read_whole

    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:  # another program's, or a test's, that is no file
        return sys.stdin.buffer.read()
    return read_whole(descriptor)


def answer_table(reply: Reply, names: list[Any], first: dict[str, Any]) -> pa.Table:
    """Return what identifies a query (`first`), and the columns of the reply, as a table."""
    import pyarrow as pa

    return pa.table({**first, **reply.columns(names)})


def write_answers(table: pa.Table, out: str | None) -> None:
    """Write answers to a file by its suffix, or as CSV to standard output."""
    if out is None or out == STREAM:
        typer.echo(_as_csv(table), nl=False)
    elif out.endswith(".csv"):
        write_file(Path(out), _as_csv(table))
    else:
        write_file(Path(out), _as_parquet(table) if out.endswith(".parquet") else _as_npy(table))


def _as_csv(table: pa.Table) -> str:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.column_names)
    columns = [column.to_pylist() for column in table.columns]
    writer.writerows([["" if v is None else v for v in row] for row in zip(*columns, strict=True)])
    return text.getvalue()


def _as_parquet(table: pa.Table) -> bytes:
    from pyarrow import parquet

    content = io.BytesIO()
    parquet.write_table(table, content)
    return content.getvalue()


def _as_npy(table: pa.Table) -> bytes:
    """Return a structured array; texts that are missing are empty, numbers NaN."""
    import numpy as np

    arrays = {}
    for i, name in enumerate(table.column_names):
        values = table.column(i).to_pylist()
        if all(v is None or isinstance(v, int | float) for v in values):
            arrays[name] = np.array([np.nan if v is None else v for v in values])
        else:
            arrays[name] = np.array(["" if v is None else str(v) for v in values])
    array = np.empty(
        table.num_rows, dtype=[(name, column.dtype) for name, column in arrays.items()]
    )
    for name, column in arrays.items():
        array[name] = column
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def summary(keys: list[bytes], reply: Reply, audience: str) -> str:
    """Return three lines on the answers: how many, which queries look alike, what is left.

    `keys` are what the store sees of each query; equal for queries that it cannot tell apart.
    """
    rows_of: dict[bytes, list[int]] = {}
    for row, key in enumerate(keys, 1):
        rows_of.setdefault(key, []).append(row)
    alike = [rows for rows in rows_of.values() if len(rows) > 1]
    free = len(rows_of) - reply.charged
    again = f"; {free} answered before, at no cost" if free else ""
    return "\n".join(
        [
            f"{len(keys)} {_plural(len(keys), 'query', 'queries')}, {reply.charged} new{again}.",
            _alike(alike),
            f"{reply.left} answers of the plan of audience {audience!r} are left.",
        ]
    )


def noise_of(plan: dict[str, Any]) -> float | None:
    """Return the noise of a vote in an audience's plan; None where it changes with answers."""
    multiplier, count = plan.get("noise_multiplier"), plan.get("n_neighbors")
    if plan["reuse_predictions"] != "none" or multiplier is None or count is None:
        return None
    return float(multiplier * math.sqrt(count))


def init_summary(store: Path, facts: dict[str, Any], target: Target, points: object) -> str:
    """Return lines on a new store: what it answers, from what, how noisy, with which model."""
    plan = facts["audiences"]["default"]["plan"]
    features, size = facts["features"], 0 if points is None else len(points)  # type: ignore[arg-type]
    noise = noise_of(plan)
    votes = (
        ""
        if noise is None
        else (f", about {plan['n_neighbors']} neighbours a query, noise of {noise:.1f} votes")
    )
    return "\n".join(
        [
            (f"{store}: {plan['n_queries']} answers of {target.described()}."),
            f"{features['number']} features ({features['kind']}); a reference of {size} rows.",
            f"epsilon {plan['epsilon']:g}, delta {plan['delta']:g}{votes}.",
            *_model_words(plan),
        ]
    )


def _model_words(plan: dict[str, Any]) -> list[str]:
    """Return the line on a private model, for classes."""
    if "model_share" not in plan:
        return []
    if not plan["model_share"]:
        return ["Private model: none."]
    share = f"{plan['model_share']:.0%}"
    return [
        f"Private model: trained, from at most {share} of every budget. Erasing somebody does not",
        "change it; --model-share 0 makes a store without one.",
    ]


def _alike(groups: list[list[int]]) -> str:
    if not groups:
        return "No two queries have the same features."
    shown = "; ".join(
        ", ".join(map(str, rows[:_SHOWN]))
        + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")
        for rows in groups[:_SHOWN]
    )
    more = f"; and {len(groups) - _SHOWN} more groups" if len(groups) > _SHOWN else ""
    count = sum(len(rows) - 1 for rows in groups)
    return (
        f"{count} {_plural(count, 'query has', 'queries have')} the features of an earlier one, "
        f"whose answer is given: rows {shown}{more}."
    )


def _plural(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
