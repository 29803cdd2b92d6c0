"""`vicinal demo`: the main job on real data, with a report."""

from __future__ import annotations

import shlex
import textwrap
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Delta, Epsilon, Json
from vicinal.cli._output import as_json, output_folder, peak_memory, progress, write_file

if TYPE_CHECKING:
    from vicinal.datasets import Dataset
    from vicinal.reports import DemoAnswers

SHIPPED = "mnist"

_WIDTH = 88
"""Columns of running text."""


def demo(
    data: Annotated[
        str, typer.Option(help="'mnist', or an npz file with x_train, y_train, x_test, y_test.")
    ] = SHIPPED,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    queries: Annotated[int, typer.Option(help="How many images to classify.")] = 1000,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("out/demo"),
    json: Json = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the report.")] = True,
) -> None:
    """Classify images privately, by the votes of their nearest neighbours.

    The training images are the private records; some of the test images are the public reference,
    others the queries. The report compares with other epsilons, each of which would spend
    a fresh budget: it is for public demonstration data only.
    """
    from vicinal import __version__, _checks
    from vicinal.reports import answer, compare, html_page, prepare

    start = time.perf_counter()
    _checks.real("epsilon", epsilon, above=0)
    _checks.real("delta", delta, above=0, below=1)
    _checks.integer("queries", queries, least=1)
    folder = output_folder(out) if report else None
    with progress(silent=json) as begin:
        trial, images = prepare(_load(data), queries, begin)
        answers = answer(trial, epsilon, delta, begin)
        written = None
        if folder:
            sweep = compare(trial, delta, begin)
            written = folder / "report.html"
            page = html_page(
                _name(data), answers, images, sweep,
                command=_command(data, epsilon, delta, queries), version=__version__,
                seconds=time.perf_counter() - start, memory=peak_memory(),
            )  # fmt: skip
            write_file(written, page)
    result = _result(data, answers, written, time.perf_counter() - start)
    typer.echo(as_json(result) if json else _text(answers, result))


def _load(data: str) -> Dataset:
    from vicinal.datasets import image_npz, load_mnist

    return load_mnist() if data == SHIPPED else image_npz(data)


def _name(data: str) -> str:
    return "MNIST" if data == SHIPPED else Path(data).stem


def _command(data: str, epsilon: float, delta: float, queries: int) -> str:
    # Only the file's name: the page may be shown to people who need not know whose folder it was.
    source = data if data == SHIPPED else Path(data).name
    words = ("--data", source, "--epsilon", f"{epsilon:g}", "--delta", f"{delta:g}")
    return shlex.join(["vicinal", "demo", *words, "--queries", str(queries)])


def _result(
    data: str, answers: DemoAnswers, written: Path | None, seconds: float
) -> dict[str, Any]:
    from vicinal import __version__

    return {
        "data": _name(data),
        **answers.outcome.to_dict(),
        "balanced_accuracy": answers.balanced_accuracy,
        "guarantee": answers.guarantee.to_dict(),
        "plan": asdict(answers.plan),
        "seconds": round(seconds, 2),
        "peak_memory_bytes": peak_memory(),
        "report": None if written is None else str(written),
        "version": __version__,
    }


def _text(answers: DemoAnswers, result: dict[str, Any]) -> str:
    from vicinal.reports import duration, gibibytes, interval, percent

    outcome, plan = answers.outcome, answers.plan
    memory = result["peak_memory_bytes"]
    took = duration(result["seconds"])
    job = (
        f"{result['data']}: {outcome.total:,} private predictions from about "
        f"{plan.n_records:,} private records (the size is estimated with noise)"
    )
    lines = [
        job,
        "",
        f"Accuracy   {percent(outcome.accuracy)}, {interval(outcome.interval)}",
        f"Balanced   {percent(answers.balanced_accuracy)}, the mean over classes",
        "",
        textwrap.fill(str(answers.guarantee), _WIDTH),
        "",
        f"Took       {took}" + ("" if memory is None else f", {gibibytes(memory)} at most"),
    ]
    if result["report"] is not None:
        lines.append(f"Report     {result['report']}")
    return "\n".join(lines)
