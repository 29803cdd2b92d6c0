"""`vicinal doctor`: what this machine has, and what vicinal makes of it."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from vicinal.cli._options import Json
from vicinal.cli._output import as_json

PACKAGES = {
    "numpy": "",
    "scipy": "",
    "scikit-learn": "",
    "numba": "",
    "pyarrow": "",
    "starlette": "serve",
    "torch": "students",
    "onnxruntime": "encoders",
    "sentence-transformers": "text",
    "timm": "vision",
    "ray": "ray",
    "psycopg": "postgres",
    "cryptography": "receipts",
    "vicinal-demo-data": "demo",
}
"""What is looked for, and the extra that brings it; the first five always belong to vicinal."""

FEATURES = ("avx2", "fma", "avx512f", "avx512vnni", "amx-int8", "neon", "i8mm")
_LOW_FILES, _LOW_MEMORY = 1024, 2**30


def doctor(json: Json = False) -> None:
    """Show versions, processor, engine, memory and file limits, and what to do about them."""
    from vicinal import __version__

    facts: dict[str, Any] = {
        "vicinal": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": _packages(),
        "processor": _processor(),
        "engines": _engines(),
        "free_memory_bytes": _free_memory(),
        "open_files": _open_files(),
    }
    facts["advice"] = _advice(facts)
    typer.echo(as_json(facts) if json else _text(facts))


def _packages() -> dict[str, str | None]:
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> dict[str, Any]:
    from llvmlite import binding

    from vicinal.neighbours import THREADS

    available = binding.get_host_cpu_features()
    return {
        "name": binding.get_host_cpu_name(),
        "cores": THREADS,
        "features": [name for name in FEATURES if available.get(name)],
    }


def _engines() -> dict[str, Any]:
    from vicinal.neighbours import INT8_LIMIT, Precision
    from vicinal.neighbours.engines import ENGINES, engine_for, proven_engines

    proven = proven_engines()
    return {
        "int8": engine_for(Precision(limit=INT8_LIMIT)).name,
        "proven": proven,
        "passed_over": [name for name in ENGINES if name not in proven],
    }


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
    """Return the limit of open files; None where there is none."""
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
        advice.append(f"{files} open files allow few connections: ulimit -n 4096 before serve.")
    if memory is not None and memory < _LOW_MEMORY:
        advice.append("Less than 1 GiB is free: a store needs its records once in memory.")
    if engines["int8"] == "float32":
        advice.append("No int8 engine works here: searches take about five times as long.")
    return advice


def _text(facts: dict[str, Any]) -> str:
    packages, processor, engines = facts["packages"], facts["processor"], facts["engines"]
    there = [f"{name} {installed}" for name, installed in packages.items() if installed]
    extras = [f"vicinal[{PACKAGES[name]}]" for name, installed in packages.items() if not installed]
    memory = facts["free_memory_bytes"]
    rows = {
        "vicinal": f"{facts['vicinal']}, Python {facts['python']}, {facts['system']}",
        "packages": ", ".join(there),
        "not here": ", ".join(extras) or "nothing",
        "processor": f"{processor['name']}, {processor['cores']} cores: "
        + (", ".join(processor["features"]) or "none of the features that are used"),
        "engine": f"{engines['int8']}, of {', '.join(engines['proven'])}: each gave "
        "the exact hits of the test patterns"
        + "".join(f"; {name} cannot be had here" for name in engines["passed_over"]),
        "memory": "not known" if memory is None else f"{memory / 2**30:.1f} GiB free",
        "files": "no limit" if facts["open_files"] is None else f"{facts['open_files']} open",
        "advice": " ".join(facts["advice"]) or "nothing to do",
    }
    return "\n".join(f"{name:<10} {text}" for name, text in rows.items())
