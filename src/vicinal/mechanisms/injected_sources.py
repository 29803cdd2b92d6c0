"""Sources of randomness that tests and audits put in place of the real ones; otherwise none.

A contract of imports reserves this module for :mod:`vicinal.testing`, which injects sources, and
for :mod:`vicinal.mechanisms.noise_sources`, which uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from vicinal.noise.source import NoiseSource

Source = TypeVar("Source")


class _Context:
    """Key of one injection, which only the frame of its context refers to."""


class InjectedSources(Generic[Source]):
    """The injected sources of one kind of randomness, in the order of their contexts."""

    def __init__(self) -> None:
        # The keys are unique: the same source may be injected by several contexts. They are weak,
        # so that an interrupt of the removal leaves no source behind once its frame is gone.
        self._source_by_context: WeakKeyDictionary[_Context, Source] = WeakKeyDictionary()

    @contextmanager
    def inject(self, source: Source) -> Iterator[None]:
        """Use `source` in this context, and remove it, and no other source, at its end."""
        context = _Context()
        try:
            self._source_by_context[context] = source
            yield
        finally:
            self._source_by_context.pop(context, None)

    def get_innermost(self) -> Source | None:
        """Return the source of the context that was entered last; None without an injection."""
        sources = list(self._source_by_context.values())
        return sources[-1] if sources else None


noise_sources: InjectedSources[NoiseSource] = InjectedSources()

samplers: InjectedSources[Any] = InjectedSources()
"""Sources of Poisson samples: ``BernoulliSource``, which a module above this one defines."""
