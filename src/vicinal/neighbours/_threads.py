"""One pool of threads a process, for work that holds no lock of the interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

COUNT = max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
"""Threads that a search may use: the processors that this process may run on."""


def mapped(function: Callable[[T], R], tasks: Sequence[T]) -> Iterable[R]:
    """Return ``function(task)`` for all tasks, in their order, worked on side by side."""
    if len(tasks) <= 1 or COUNT == 1:
        return map(function, tasks)
    return _pool(os.getpid()).map(function, tasks)


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 (a fork inherits no threads)
    return ThreadPoolExecutor(COUNT, thread_name_prefix="vicinal")
