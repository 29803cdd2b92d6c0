"""`vicinal demo` and `doctor`: an example run, and a check of this machine.

Shared options: `epsilon` and `delta` of the run's guarantee; `json`, print one JSON object.
"""

from __future__ import annotations

import platform
import shlex
import sys
import textwrap
import time
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from vicinal import __version__
from vicinal.cli.options import Delta, Epsilon, Json
from vicinal.cli.output import as_json, create_output_folder, echo, show_progress_bars, write_file
from vicinal.declared_sizes import find_available_bytes

if TYPE_CHECKING:
    from vicinal.reports.demo import DemoAnswers

_BUNDLED_DATA = "mnist"
_WIDTH = 88  # characters per line of running text

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
"""Packages that `doctor` looks for, and the extra that installs them; empty for dependencies."""

_MIN_OPEN_FILES = 1024  # a lower limit is reported as too low for a service
_MIN_FREE_BYTES = 2**30


def demo(
    data: Annotated[
        str, Option(help="mnist, or an npz file with x_train, y_train, x_test and y_test.")
    ] = _BUNDLED_DATA,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    queries: Annotated[int, Option(help="Number of images to classify.")] = 1000,
    out: Annotated[Path, Option(help="Folder for the report.")] = Path("out/demo"),
    json: Json = False,
) -> None:
    """Classify handwritten digits from 60,000 private ones.

    The training images are the private records. Some test images are the public rows, and other
    test images are the queries.
    """
    from vicinal import checks
    from vicinal.datasets.dataset import load_mnist
    from vicinal.datasets.tables import load_table
    from vicinal.reports.demo import answer_queries, prepare_trial, render_demo_page

    start = time.perf_counter()
    checks.check_real("epsilon", epsilon, above=0)
    checks.check_real("delta", delta, above=0, below=1)
    checks.check_integer("queries", queries, minimum=1)
    report_path = create_output_folder(out) / "report.html"
    is_bundled = data == _BUNDLED_DATA
    # The report shows the name of the data file only, because its folder may be confidential.
    name = "MNIST" if is_bundled else Path(data).stem
    with show_progress_bars(silent=json) as begin:
        images = load_mnist() if is_bundled else load_table(data)
        trial, pictures = prepare_trial(images, queries, begin)
        answers = answer_queries(trial, epsilon, delta, begin)
        guarantee = answers.guarantee
        arguments = {
            "--data": data if is_bundled else Path(data).name,
            "--epsilon": f"{guarantee.epsilon:g}",
            "--delta": f"{guarantee.delta:g}",
            "--queries": str(answers.plan["n_queries"]),
        }
        command = shlex.join(["vicinal", "demo", *chain.from_iterable(arguments.items())])
        seconds = time.perf_counter() - start
        page = render_demo_page(
            name, answers, pictures, command=command, version=__version__, seconds=seconds
        )
        write_file(report_path, page)
    result = {
        "data": name,
        **answers.outcome.to_dict(),
        "guarantee": guarantee.to_dict(),
        "plan": answers.plan,
        "seconds": round(time.perf_counter() - start, 2),
        "report": str(report_path),
        "version": __version__,
    }
    echo(as_json(result) if json else _format_demo(answers, result))


def _format_demo(answers: DemoAnswers, result: dict[str, Any]) -> str:
    """Return the text on a demo run's `answers`; `result`: the JSON object of --json."""
    from vicinal.reports import text as report_text

    outcome = answers.outcome
    accuracy = report_text.format_percent(outcome.accuracy)
    lines = [
        (
            f"{result['data']}: {outcome.total:,} private predictions from about "
            f"{answers.plan['n_records']:,} private records (a noisy estimate)"
        ),
        "",
        f"Accuracy   {accuracy}, {report_text.format_interval(outcome.interval)}",
        "",
        textwrap.fill(str(answers.guarantee), _WIDTH),
        "",
        f"Took       {report_text.format_duration(result['seconds'])}",
        f"Report     {result['report']}",
    ]
    return "\n".join(lines)


def doctor(json: Json = False) -> None:
    """Show the properties of this machine, with advice."""
    from llvmlite import binding

    from vicinal.neighbours.engines import get_engine, list_exact_engines
    from vicinal.neighbours.kernels import INT8_LIMIT, Precision
    from vicinal.neighbours.scan import get_thread_count

    int8_engine = str(get_engine(Precision(limit=INT8_LIMIT)).name)
    facts: dict[str, Any] = {
        "vicinal": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _find_version(name) for name in PACKAGES},
        "processor": {"name": binding.get_host_cpu_name(), "cores": get_thread_count()},
        "engines": {"int8": int8_engine, "proven": list_exact_engines()},
        "free_memory_bytes": find_available_bytes(),
        "open_files": _find_open_file_limit(),
    }
    facts["advice"] = _list_advice(facts)
    echo(as_json(facts) if json else _format_facts(facts))


def _find_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_open_file_limit() -> int | None:
    """Return the limit on open files of this process; None if there is none or it is unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft_limit == resource.RLIM_INFINITY else soft_limit


def _list_advice(facts: dict[str, Any]) -> list[str]:
    """Return sentences on unsuitable properties in `facts`, the JSON object of `doctor`."""
    max_files = facts["open_files"]
    free_bytes = facts["free_memory_bytes"]
    advice = []
    if sys.platform == "win32":
        advice.append("Stores need POSIX file locks: use Linux or macOS, or WSL.")
    if max_files is not None and max_files < _MIN_OPEN_FILES:
        advice.append(f"A limit of {max_files} open files is low: run ulimit -n 4096 before serve.")
    if free_bytes is not None and free_bytes < _MIN_FREE_BYTES:
        advice.append("Less than 1 GiB of memory is free, and a store holds its records there.")
    if facts["engines"]["int8"] == "float32":
        advice.append(
            "This processor has no int8 instructions that vicinal uses (AVX-512 VNNI), so searches "
            "take about five times as long. Everything works."
        )
    return advice


def _format_facts(facts: dict[str, Any]) -> str:
    """Return the text of `doctor`: a line for each of `facts` (versions, processor, memory ...)."""
    packages = facts["packages"]
    installed = [f"{name} {release}" for name, release in packages.items() if release]
    missing = [f"vicinal[{PACKAGES[name]}]" for name, release in packages.items() if not release]
    processor = facts["processor"]
    engines = facts["engines"]
    free_bytes = facts["free_memory_bytes"]
    rows = {
        "vicinal": f"{facts['vicinal']}, Python {facts['python']}, {facts['system']}",
        "packages": ", ".join(installed),
        "missing": ", ".join(missing) or "nothing",
        "processor": f"{processor['name']}, {processor['cores']} cores",
        "engine": f"{engines['int8']} is used. Exact here: {', '.join(engines['proven'])}",
        "memory": "unknown" if free_bytes is None else f"{free_bytes / 2**30:.1f} GiB free",
        "files": "no limit" if facts["open_files"] is None else f"{facts['open_files']} open",
        "advice": " ".join(facts["advice"]) or "change nothing",
    }
    return "\n".join(f"{name:<10} {text}" for name, text in rows.items())
