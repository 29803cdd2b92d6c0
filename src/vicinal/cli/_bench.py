"""`vicinal bench`: what a search costs on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Json
from vicinal.cli._output import as_json, peak_memory, progress, write_file

if TYPE_CHECKING:
    from vicinal.reports import BenchmarkData

Row = dict[str, Any]

SIZES = ((50_000, 128), (50_000, 384), (50_000, 768), (500_000, 128), (500_000, 384))
LARGE = ((500_000, 768), (5_000_000, 128))
BLOCKS = (1, 16, 64, 256, 1024)
SHORT_SIZES, SHORT_BLOCKS = ((5_000, 64), (20_000, 64)), (1, 64)


def bench(
    short: Annotated[bool, typer.Option("--short", help="Small sizes: some seconds.")] = False,
    large: Annotated[
        bool, typer.Option("--large", help="Also 5,000,000 records: minutes and 4 GB.")
    ] = False,
    repeats: Annotated[int, typer.Option(help="Turns to take the median of.", min=1)] = 7,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the cost against the number of records (PNG).")
    ] = None,
    json: Json = False,
) -> None:
    """Measure searches: milliseconds a query, beside the bare matrix product of the same run.

    Indexes are compared at what they find of the records inside a radius that holds .1 % of all
    (recall). Data are made up. Nothing private is read and nothing is spent.
    """
    from vicinal.neighbours import INT8_LIMIT, Precision
    from vicinal.neighbours.engines import engine_for
    from vicinal.reports import BenchmarkData

    engine = engine_for(Precision(limit=INT8_LIMIT)).name
    sizes = SHORT_SIZES if short else SIZES + (LARGE if large else ())
    rows: list[Row] = []
    with progress(silent=json) as begin:
        step = begin("sizes", len(sizes))
        for n, d in sizes:
            rows += _measured(BenchmarkData(n, d), SHORT_BLOCKS if short else BLOCKS, repeats)
            step(1)
    result = {"engine": engine, "threads": _threads(), "rows": rows, "growth": _growth(rows)}
    if plot is not None:
        write_file(plot, _picture(rows))
    typer.echo(as_json(result | _about()) if json else _text(result))


def _measured(data: BenchmarkData, blocks: tuple[int, ...], repeats: int) -> list[Row]:
    """Return one row for each size of block: ms a query by method, and recalls."""
    from vicinal.reports import TABLES, SearchBenchmark, interleaved

    tables = TABLES if data.n <= SIZES[0][0] else ()
    indexes = SearchBenchmark(data, max(256, *blocks), tables)
    recalls = indexes.recalls()
    rows = []
    for block in blocks:
        works = indexes.products(block) | indexes.works(block)
        seconds = interleaved(works, repeats)
        milliseconds = {name: 1000 * value / block for name, value in seconds.items()}
        rows.append(
            {"n": data.n, "d": data.d, "block": block, "ms": milliseconds, "recall": recalls}
        )
    return rows


def _growth(rows: list[Row]) -> dict[str, float]:
    """Return the power of n that costs grow with, at the largest block and the smallest d."""
    from vicinal.reports import exponent

    chosen = _largest_blocks(rows)
    if len(chosen) < 2:
        return {}
    names = [name for name in chosen[0]["ms"] if all(name in row["ms"] for row in chosen)]
    sizes = [row["n"] for row in chosen]
    return {name: exponent(sizes, [row["ms"][name] for row in chosen]) for name in names}


def _largest_blocks(rows: list[Row]) -> list[Row]:
    width, block = min(row["d"] for row in rows), max(row["block"] for row in rows)
    return [row for row in rows if row["d"] == width and row["block"] == block]


def _text(result: dict[str, Any]) -> str:
    """Return the tables for people."""
    lines = [f"int8 engine: {result['engine']}, {result['threads']} threads; ms a query (recall)"]
    for row in result["rows"]:
        base = row["ms"].get("int8 product")
        lines.append(f"\nn = {row['n']:,}, d = {row['d']}, blocks of {row['block']}")
        for name, value in row["ms"].items():
            ratio = f"{value / base:8.2f} x" if base else ""
            recall = f"  {row['recall'][name]:.3f}" if name in row["recall"] else ""
            lines.append(f"  {name:<20}{value:10.4f}{ratio}{recall}")
    lines += ["", "cost grows with n to the power of"]
    lines += [f"  {name:<20}{power:10.2f}" for name, power in result["growth"].items()]
    return "\n".join(lines)


def _picture(rows: list[Row]) -> bytes:
    """Draw ms a query against n for every index."""
    from matplotlib.figure import Figure

    from vicinal.reports import figure_bytes

    chosen = _largest_blocks(rows)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, marker in zip(chosen[0]["ms"], "osD^vP*Xh<>", strict=False):
        points = [(row["n"], row["ms"][name]) for row in chosen if name in row["ms"]]
        axes.plot(*zip(*points, strict=True), marker=marker, label=name)
    axes.set(
        xscale="log", yscale="log", xlabel="records", ylabel="ms a query",
        title=f"blocks of {chosen[0]['block']}, {chosen[0]['d']} features",
    )  # fmt: skip
    axes.legend(fontsize="small")
    return figure_bytes(figure)


def _threads() -> int:
    from vicinal.neighbours import THREADS

    return THREADS


def _about() -> dict[str, Any]:
    """Return what a reader of the figures must know of the machine and the version."""
    from vicinal import __version__

    return {"cores": _threads(), "peak_memory_bytes": peak_memory(), "version": __version__}
