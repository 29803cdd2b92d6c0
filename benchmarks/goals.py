"""Every goal of speed with its figure: `python -m benchmarks [--only WORD] [--short]`.

A goal is a bound on one number; what stands beside a product or a search in the same process is
given as a ratio to it, too. Milliseconds by the clock, minimum or median of some repetitions, so a
machine that does other work prints figures that are too large: look at the load in the first line.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from joblib import cpu_count

from benchmarks import parts

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Figure:
    """One number, the most that it should be (infinity: no goal), and what it is in."""

    name: str
    value: float
    most: float
    unit: str

    def line(self) -> str:
        """Return a line of the table."""
        if math.isinf(self.most):
            return f"{self.name:<62}{self.value:10.3f}{'':>9} {self.unit}"
        met = "met" if self.value <= self.most else f"missed by {self.value / self.most:.2f}"
        return f"{self.name:<62}{self.value:10.3f}{self.most:9.2f} {self.unit:<11}{met}"


Figures = Iterator[Figure]


def features(short: bool) -> Figures:
    """Yield ms an image of both extractors, on all processors."""
    from examples.scattering import ScatteringFeatures
    from vicinal.features import HOGFeatures

    images = np.random.default_rng(0).integers(0, 256, (512 if short else 4096, 28, 28))
    for name, extractor, most in (
        ("gradients, an image of 28 x 28", HOGFeatures(n_jobs=-1), 0.08),
        ("scattering, an image of 28 x 28", ScatteringFeatures(n_jobs=-1), 0.2),
    ):
        seconds = least(lambda one=extractor: one.transform(images), 3)
        yield Figure(name, 1e3 * seconds / len(images), most, "ms")


def start_up(short: bool) -> Figures:
    """Yield seconds of short commands, warm."""
    plan = str(ROOT / "examples" / "plans" / "table1_mnist.json")
    for name, arguments, most in (
        ("import vicinal", ["-c", "import vicinal"], 0.3),
        ("vicinal --version", ["-m", "vicinal", "--version"], 0.3),
        ("vicinal --help", ["-m", "vicinal", "--help"], 0.5),
        ("vicinal account, Table 1, warm", ["-m", "vicinal", "account", plan], 1.0),
    ):
        yield Figure(name, least(lambda a=arguments: run(a), 2 if short else 5), most, "s")


def demonstration(short: bool) -> Figures:
    """Yield seconds of what an installation compiles, and of the demo with its report after it."""
    options = ["--queries", "50"] if short else []
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["-m", "vicinal", "demo", "--json", "--out", f"{folder}/out", *options]
        installed = least(lambda: run(["-m", "vicinal.reports._compile"], folder), 1)
        yield Figure("compiling, as an installation does", installed, math.inf, "s")
        cold = least(lambda: run(arguments, folder), 1)
        yield Figure("demo with its report, first run installed", cold, 25, "s")
        warm = least(lambda: run(arguments, folder), 1 if short else 2)
        yield Figure("demo with its report, later runs", warm, 12, "s")


def prediction(short: bool) -> Figures:
    """Yield the whole prediction over its search, and noise and radius, at all sizes."""
    for n, d, share in ((20_000, 128, 0.01),) if short else parts.SIZES:
        times = parts.measure(n, d, share, 3 if short else 15)
        size = f"n = {n:,}, d = {d}, {share:.1%} inside"
        ratio = times["whole prediction"] / times[parts.SEARCH]
        yield Figure(f"prediction over search, {size}", ratio, 1.2, "searches")
        if (n, d) == (50_000, 768):
            search = times[parts.SEARCH] / parts.BLOCK
            yield Figure(f"search, a query, {size}", search, 0.05, "ms")
        aside = (times["radius"] + times["noise"]) / parts.BLOCK
        yield Figure(f"noise and radius, a query, {size}", aside, 0.01, "ms")


def training(short: bool) -> Figures:
    """Yield seconds of a private model's training, and ms of an answer where it answers most."""
    from benchmarks import training as table

    for name, value, most, unit in table.figures(5_000 if short else 60_000):
        yield Figure(name, value, most, unit)


def private_knn(short: bool) -> Figures:
    """Yield ms a query of Private-kNN at small and large gamma: 324 features, 1,000 at a time."""
    from vicinal.predictors import PrivateKNNClassifier

    rng = np.random.default_rng(0)
    records, queries = (5_000, 250) if short else (60_000, 1_000)
    X, Q = (rng.normal(size=(size, 324)).astype(np.float32) for size in (records, queries))
    for gamma in (0.03, 0.2):
        # All queries pass the screening, so each is sampled twice.
        classifier = PrivateKNNClassifier(
            range(10), 300, gamma, sigma_screen=75.0, threshold=-1e6, sigma_votes=25.0,
            n_queries=10**6, interactions="public",
        ).fit(X, rng.integers(0, 10, records), public=Q + 1)  # fmt: skip
        answer = 1e3 * least(lambda one=classifier: one.predict(Q), 5) / queries
        yield Figure(f"Private-kNN, a query, gamma {gamma}, k 300", answer, 0.2, "ms")


def service(short: bool) -> Figures:
    """Yield response times of the service, every commit on the disk, clients on this machine."""
    import asyncio

    from benchmarks import serving

    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        key = serving.make_store(store, 5_000 if short else 60_000)

        def times(clients: int, count: int, seed: int) -> np.ndarray:
            contents = serving.requests(serving.bodies(count, 1, seed), key)
            return 1e3 * np.array(asyncio.run(serving.load(at[0], contents, clients)))

        flush = least(lambda: flushed(Path(folder) / "flushed"), 50)
        yield Figure("a flush of the disk, for comparison", 1e3 * flush, math.inf, "ms")
        with serving.service(store) as at:
            times(16, 300, 1)
            alone = np.median(times(1, 60 if short else 400, 2))
            yield Figure("a request alone, p50", float(alone), 3, "ms")
            count, start = 500 if short else 6000, time.perf_counter()
            many = np.quantile(times(256, count, 3), 0.99)
            took = 1e3 * (time.perf_counter() - start) / count
            yield Figure("256 clients, p99", float(many), 100, "ms")
            yield Figure("256 clients, a request (2,000 a second)", took, 0.5, "ms")
        store = Path(folder) / "beside a model"
        key = serving.make_store(store, 5_000 if short else 60_000, serving.MODEL_PLAN)
        with serving.service(store) as at:
            times(16, 100, 4)
            alone = np.median(times(1, 60 if short else 400, 5))
            yield Figure("a request alone beside a private model, p50", float(alone), 3, "ms")
            many = np.quantile(times(256, 500 if short else 6000, 6), 0.99)
            yield Figure("256 clients beside a private model, p99", float(many), 100, "ms")


def people(short: bool) -> Figures:
    """Yield what a store of a million subjects takes: opening, memory, erasing 10,000.

    Memory is what a process holds more once it has opened such a store and answered than one that
    did so with a store of 1,000: libraries and compiled code take the same in both.
    """
    count = 20_000 if short else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        few, many = (_measured_store(f"{folder}/{n}", n) for n in (1_000, count))
    integers = (count - 1_000) * (_WIDTH + 8)
    yield Figure(f"open a store of {count:,} subjects", many["open"], 3, "s")
    more = [(many[what] - few[what]) / integers for what in ("resident", "peak", "opened")]
    yield Figure("memory over that of the integers", more[0], 1.3, "times")
    yield Figure("the same at its peak, while opening and answering", more[1], 1.3, "times")
    loaded = more[2] + (few["opened"] - few["before"]) / integers
    yield Figure("memory with libraries that opening loads", loaded, math.inf, "times")
    yield Figure("erase 10,000 of them", many["erase"], 1, "s")
    yield Figure("erase 10,000 of them, of the processor", many["worked"], math.inf, "s")


_WIDTH = 128


def _measured_store(path: str, count: int) -> dict[str, float]:
    run(["-c", _MAKE, path, str(count), str(_WIDTH)])
    told: dict[str, float] = json.loads(run(["-c", _OPEN, path, str(count)]).splitlines()[-1])
    return told


_MAKE = """
import sys
import numpy as np
from vicinal.store import Store
path, n, d = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
rows, R = rng.standard_normal((n, d), dtype=np.float32), rng.standard_normal((2000, d))
people = [f"person-{i}" for i in range(n)]
Store.init(path, rows, rng.integers(0, 10, n), people, classes=range(10), public=R, n_queries=1000,
           n_neighbors=max(30, n // 1000), noise_multiplier=5.0, n_records=n,
           delta=min(1e-5, 1 / n)).close()
"""
_OPEN = """
import json, sys, time
from pathlib import Path
from vicinal.store import Store
path, n = sys.argv[1], int(sys.argv[2])
def memory(name):
    return 1024 * int(Path("/proc/self/status").read_text().split(name + ":")[1].split()[0])
before, start = memory("VmRSS"), time.perf_counter()
store = Store.open(path)
took, opened = time.perf_counter() - start, memory("VmRSS")
store.predict(store.schema.public[:1])
answered = {"resident": memory("VmRSS"), "peak": memory("VmHWM")}
gone = [f"person-{i}" for i in range(n)][:: max(1, n // 10_000)][:10_000]
start, busy = time.perf_counter(), time.process_time()
store.erase(gone)
erased = {"erase": time.perf_counter() - start, "worked": time.process_time() - busy}
print(json.dumps({"before": before, "open": took, "opened": opened, **answered, **erased}))
"""

GROUPS: dict[str, Callable[[bool], Figures]] = {
    "features": features,
    "start-up": start_up,
    "demo": demonstration,
    "prediction": prediction,
    "training": training,
    "private-knn": private_knn,
    "service": service,
    "people": people,
}


def least(work: Callable[[], object], times: int) -> float:
    """Return the shortest time of a work in seconds, after one that does not count if many."""
    took = []
    for _ in range(times + (times > 1)):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took[times > 1 :])


def flushed(path: Path) -> None:
    """Append to a file and wait until it is on the disk, which every commit does."""
    with path.open("ab") as file:
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())


def run(arguments: list[str], cache: str | None = None) -> str:
    """Run Python in a process of its own and return its output.

    Bytecode is kept, whatever the environment says, as it is for whoever installed; `cache` is
    where it lies, and compiled code, if not where they always lie.
    """
    environment = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}
    if cache is not None:
        environment |= {"XDG_CACHE_HOME": cache, "PYTHONPYCACHEPREFIX": f"{cache}/bytecode"}
    done = subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def report(short: bool, only: str | None) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield f"{cpu_count()} processors, load {os.getloadavg()[0]:.1f}"
    yield f"{'':<62}{'figure':>10}{'at most':>9}"
    for name, group in GROUPS.items():
        if only is None or only == name:
            yield from (figure.line() for figure in group(short))
