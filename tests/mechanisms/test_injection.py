"""Sources and thread counts that tests inject: used inside their contexts, gone after them."""

import gc
import threading
from weakref import WeakKeyDictionary

import pytest

from line_faults import Fault, FaultAt, Visited, tracing
from vicinal import testing
from vicinal.errors import InvalidInput
from vicinal.ledger.total import TotalFilter
from vicinal.mechanisms.noise_sources import (
    SimulatedBernoulli,
    SystemBernoulli,
    SystemNoise,
    create_noise_source,
    create_sampler,
)
from vicinal.neighbours.scan import get_thread_count, map_in_threads

INJECTIONS = {
    "noise": (testing.noise_from, create_noise_source, testing.no_noise, SystemNoise),
    "samples": (testing.coins_from, create_sampler, lambda: SimulatedBernoulli(0), SystemBernoulli),
}


@pytest.fixture(params=INJECTIONS)
def injection(request):
    return INJECTIONS[request.param]


def test_the_innermost_source_is_used_and_the_outer_one_after_it(injection):
    inject, create, make_source, real_type = injection
    outer, inner = make_source(), make_source()
    with inject(outer):
        with inject(inner):
            assert create() is inner
            assert create(3) is inner, "the seed of a plan made an own source"
            with inject(outer):
                assert create() is outer
            assert create() is inner
        assert create() is outer
    assert type(create()) is real_type


def test_an_error_removes_the_source(injection):
    inject, create, make_source, real_type = injection
    with pytest.raises(KeyError), inject(make_source()):
        raise KeyError
    assert type(create()) is real_type


def test_an_interrupt_of_the_removal_leaves_no_source(injection, monkeypatch):
    inject, create, make_source, real_type = injection

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(WeakKeyDictionary, "pop", interrupt)
    with pytest.raises(KeyboardInterrupt), inject(make_source()):
        pass
    monkeypatch.undo()
    gc.collect()
    assert type(create()) is real_type


def test_a_context_that_ends_early_removes_its_own_source(injection):
    inject, create, make_source, real_type = injection
    inner = make_source()
    first, second = inject(make_source()), inject(inner)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert create() is inner
    second.__exit__(None, None, None)
    assert type(create()) is real_type


CONTEXTS = {
    "noise": lambda: testing.noise_from(testing.no_noise()),
    "samples": lambda: testing.coins_from(SimulatedBernoulli(0)),
    "threads": lambda: testing.use_threads(get_thread_count() + 1),
    "charges": lambda: testing.charges_broken("uncharged", ["total"]),
}


@pytest.mark.parametrize("kind", CONTEXTS)
def test_an_interrupt_at_any_line_of_the_entry_changes_nothing(kind):
    def read_state():
        sources = (type(create_noise_source()), type(create_sampler()))
        return sources, get_thread_count(), TotalFilter.price

    original = read_state()
    with tracing() as tracer:
        visited = Visited(tracer)
        with visited, CONTEXTS[kind]():
            tracer.visit = None
        assert len(visited.lines) > 5
        for line in visited.lines:
            with pytest.raises(Fault), FaultAt(tracer, line), CONTEXTS[kind]():
                tracer.visit = None
            assert read_state() == original, line


def test_the_thread_count_is_set_inside_its_context_only():
    original = get_thread_count()
    with testing.use_threads(original + 1):
        with testing.use_threads(original + 2):
            assert get_thread_count() == original + 2
        assert get_thread_count() == original + 1
    with pytest.raises(KeyError), testing.use_threads(original + 1):
        raise KeyError
    assert get_thread_count() == original


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "2"])
def test_a_thread_count_that_is_no_positive_integer_is_refused(number):
    original = get_thread_count()
    with pytest.raises(InvalidInput, match="number"), testing.use_threads(number):
        pass
    assert get_thread_count() == original


def test_tasks_run_on_as_many_threads_as_are_set():
    """A pool that was created for another number would let a barrier wait forever."""
    for n_threads in (2, 5, 3):
        barrier = threading.Barrier(n_threads, timeout=20)
        with testing.use_threads(n_threads):
            map_in_threads(lambda _, wait=barrier.wait: wait(), range(n_threads))
