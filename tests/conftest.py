"""What holds for all tests: nothing is timed, nothing is left to luck; fits may repeat.

Entropy is seeded (entropy.py), examples of Hypothesis are the same in every run, and soaks are left
out unless ``--soak`` asks for them: then they run alone, on other examples and more of them.
"""

import gc
import itertools
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from vicinal.interactions.fit_registry import REGISTRY, FitRegistry

pytest_plugins = ["entropy", "other_accounts", "ray_engine", "scratch"]

FIND_REFUSAL_REASON = FitRegistry._find_refusal_reason
"""What refuses a second fit to the same records."""

# Times depend on the machine alone; examples must not.
settings.register_profile(
    "fixed", deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("soak", settings.get_profile("fixed"), derandomize=False)
settings.load_profile("fixed")

MODULES_OF_COLLECTION = set()
"""Names of all modules that were imported when the collection of the tests ended."""

gc.disable()  # an eighth of what collection takes is searches for garbage: there is none yet


def pytest_addoption(parser):
    parser.addoption("--soak", action="store_true", help="run what is marked `soak`, and that only")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    wanted = config.getoption("--soak")
    kept, left_out = [], []
    for item in items:
        soaks = item.get_closest_marker("soak") is not None
        (kept if soaks == wanted else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    n_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = put_slow_tests_first(kept, n_workers) if n_workers > 1 else kept


def put_slow_tests_first(items, n_workers):
    """Return the tests in an order in which each worker begins with its part of the slow ones.

    Workers take equal parts of the list, in order, and then tests from the ends of each other's
    parts. A slow test at the end would run alone.
    """
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    others = [item for item in items if item.get_closest_marker("slow") is None]
    ordered = []
    for worker in range(n_workers):
        part = slow[worker::n_workers]
        n_others = len(items) * (worker + 1) // n_workers - len(ordered) - len(part)
        ordered += part + others[:n_others]
        del others[:n_others]
    return ordered


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave imported modules and collected tests out of every later search for garbage.

    The product searches before it refuses records; beside all modules that takes up to a second.
    A search here would take half a second in each process, and frees little.
    """
    MODULES_OF_COLLECTION.update(sys.modules)
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)  # a search among what tests leave has little to find
    gc.enable()


@pytest.fixture(scope="session")
def modules_of_collection():
    """Return the names of the modules that collection imported, a set."""
    return MODULES_OF_COLLECTION


@pytest.fixture
def tmp_path(tmp_path):
    """Return a folder in a folder: what a test leaves beside its own (witnesses) goes with it."""
    own = tmp_path / "own"
    own.mkdir()
    return own


@pytest.fixture(autouse=True, scope="session")
def interactions_repeat():
    """Let tests and their fixtures fit the same generated records as often as they like."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FitRegistry, "_find_refusal_reason", lambda *_: "")
        yield


@pytest.fixture(autouse=True)
def interactions_alone(request):
    """Let tests marked `counts_interactions` start from an empty registry that refuses, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(REGISTRY, "_claims", [])
        if request.node.get_closest_marker("counts_interactions") is not None:
            patch.setattr(FitRegistry, "_find_refusal_reason", FIND_REFUSAL_REASON)
            gc.freeze()  # each fit searches for garbage: not in what other tests have left
        yield


@pytest.fixture(scope="session", autouse=True)
def config_home(tmp_path_factory):
    """Let tests, and the processes that they start, note servers in a folder of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres():
    """Run a PostgreSQL server for the session, where there is one, and yield its URL."""
    import store_tools

    with store_tools.postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(request):
    """Return a function that makes an empty database and returns its URL."""
    import store_tools

    server = request.getfixturevalue
    return lambda: store_tools.fresh_database(server("postgres"), f"test{next(_NUMBERS)}")
