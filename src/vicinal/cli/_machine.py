"""`vicinal demo` and `doctor`: the main job, and what a machine has."""

from __future__ import annotations

import platform
import shlex
import sys
import textwrap
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, echo

from vicinal import __version__
from vicinal.cli.options import Delta, Epsilon, Json
from vicinal.cli.output import as_json, output_folder, show_progress_bars, write_file

if TYPE_CHECKING:
    from vicinal.reports.demo import DemoAnswers

SHIPPED = "mnist"
_WIDTH = 88
"""Columns of running text."""

PACKAGES = {
    **dict.fromkeys(("numpy", "scipy", "scikit-learn", "numba", "pyarrow"), ""),
    "starlette": "serve",
    "torch": "students",
    "onnxruntime": "encoders",
    "sentence-transformers": "text",
    "ray": "ray",
    "psycopg": "postgres",
    "cryptography": "receipts",
    "vicinal-demo-data": "demo",
}
"""What is looked for, and the extra that brings it; the first five always belong to vicinal."""

_LOW_FILES, _LOW_MEMORY = 1024, 2**30


def demo(
    data: Annotated[
        str, Option(help="mnist, or an npz file with x_train, y_train, x_test and y_test.")
    ] = SHIPPED,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    queries: Annotated[int, Option(help="How many images to classify.")] = 1000,
    out: Annotated[Path, Option(help="Folder for the report.")] = Path("out/demo"),
    json: Json = False,
) -> None:
    """Classify handwritten digits from 60,000 private ones.

    The training images are the private records. Some test images are the public rows, and others
    are the queries.
    """
    from vicinal import checks
    from vicinal.datasets.dataset import load_mnist
    from vicinal.datasets.tables import load_table
    from vicinal.reports.demo import answer, html_page, prepare

    start = time.perf_counter()
    checks.check_real("epsilon", epsilon, above=0)
    checks.check_real("delta", delta, above=0, below=1)
    checks.check_integer("queries", queries, least=1)
    written = output_folder(out) / "report.html"
    # Only the file's name: the page may be shown to people who need not know whose folder it was.
    name, source = ("MNIST", SHIPPED) if data == SHIPPED else (Path(data).stem, Path(data).name)
    with show_progress_bars(silent=json) as begin:
        images = load_mnist() if data == SHIPPED else load_table(data)
        trial, pictures = prepare(images, queries, begin)
        answers = answer(trial, epsilon, delta, begin)
        guarantee, plan = answers.guarantee, answers.plan
        words = ["--data", source, "--epsilon", f"{guarantee.epsilon:g}"]
        words += ["--delta", f"{guarantee.delta:g}", "--queries", str(plan["n_queries"])]
        page = html_page(
            name, answers, pictures,
            command=shlex.join(["vicinal", "demo", *words]), version=__version__,
            seconds=time.perf_counter() - start,
        )  # fmt: skip
        write_file(written, page)
    result = {
        "data": name,
        **answers.outcome.to_dict(),
        "guarantee": guarantee.to_dict(),
        "plan": plan,
        "seconds": round(time.perf_counter() - start, 2),
        "report": str(written),
        "version": __version__,
    }
    echo(as_json(result) if json else _demo_text(answers, result))


def _demo_text(answers: DemoAnswers, result: dict[str, Any]) -> str:
    from vicinal.reports import text as reports_text
    from vicinal.reports.text import format_duration, format_percent

    outcome = answers.outcome
    interval = reports_text.format_interval(outcome.interval)
    lines = [
        (
            f"{result['data']}: {outcome.total:,} private predictions from about "
            f"{answers.plan['n_records']:,} private records (a noisy estimate)"
        ),
        "",
        f"Accuracy   {format_percent(outcome.accuracy)}, {interval}",
        "",
        textwrap.fill(str(answers.guarantee), _WIDTH),
        "",
        f"Took       {format_duration(result['seconds'])}",
        f"Report     {result['report']}",
    ]
    return "\n".join(lines)


def doctor(json: Json = False) -> None:
    """Show what this machine has, and what you should change."""
    from vicinal.neighbours.engines import proven_engines

    facts: dict[str, Any] = {
        "vicinal": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "processor": _processor(),
        "engines": {"int8": _int8_engine(), "proven": proven_engines()},
        "free_memory_bytes": _free_memory(),
        "open_files": _open_files(),
    }
    facts["advice"] = _advice(facts)
    echo(as_json(facts) if json else _doctor_text(facts))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    from llvmlite import binding

    from vicinal.neighbours.scan import THREADS

    return {"name": binding.get_host_cpu_name(), "cores": THREADS}


def _int8_engine() -> str:
    from vicinal.neighbours.engines import engine_for
    from vicinal.neighbours.kernels import INT8_LIMIT, Precision

    return str(engine_for(Precision(limit=INT8_LIMIT)).name)


def _free_memory() -> int | None:
    """Return the bytes that a process may still take; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    numbers = {name: int(value.split()[0]) for name, _, value in (x.partition(":") for x in lines)}
    available = numbers.get("MemAvailable")
    return None if available is None else available * 1024


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _advice(facts: dict[str, Any]) -> list[str]:
    files, memory, engines = facts["open_files"], facts["free_memory_bytes"], facts["engines"]
    advice = []
    if sys.platform == "win32":
        advice.append("Stores need POSIX file locks: use Linux or macOS, or WSL.")
    if files is not None and files < _LOW_FILES:
        advice.append(f"A limit of {files} open files is low: run ulimit -n 4096 before serve.")
    if memory is not None and memory < _LOW_MEMORY:
        advice.append("Less than 1 GiB of memory is free, and a store holds its records there.")
    if engines["int8"] == "float32":
        advice.append(
            "This processor has no int8 instructions that vicinal uses (AVX-512 VNNI), so searches "
            "take about five times as long. Everything works."
        )
    return advice


def _doctor_text(facts: dict[str, Any]) -> str:
    packages, processor, engines = facts["packages"], facts["processor"], facts["engines"]
    there = [f"{name} {installed}" for name, installed in packages.items() if installed]
    extras = [f"vicinal[{PACKAGES[name]}]" for name, installed in packages.items() if not installed]
    memory = facts["free_memory_bytes"]
    rows = {
        "vicinal": f"{facts['vicinal']}, Python {facts['python']}, {facts['system']}",
        "packages": ", ".join(there),
        "missing": ", ".join(extras) or "nothing",
        "processor": f"{processor['name']}, {processor['cores']} cores",
        "engine": f"{engines['int8']} is used. Exact here: {', '.join(engines['proven'])}",
        "memory": "unknown" if memory is None else f"{memory / 2**30:.1f} GiB free",
        "files": "no limit" if facts["open_files"] is None else f"{facts['open_files']} open",
        "advice": " ".join(facts["advice"]) or "change nothing",
    }
    return "\n".join(f"{name:<10} {text}" for name, text in rows.items())
