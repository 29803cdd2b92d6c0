"""Sources of randomness that tests and audits put in place of the real ones; otherwise none.

A contract of imports reserves this module for :mod:`vicinal.testing`, which injects sources, and
for :mod:`vicinal.mechanisms.noise_sources`, which uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from vicinal.noise.source import NoiseSource

Source = TypeVar("Source")


class InjectedSources(Generic[Source]):
    """The injected sources of one kind of randomness, in the order of their contexts."""

    def __init__(self) -> None:
        # The keys are unique: the same source may be injected by several contexts.
        self._source_by_context: dict[object, Source] = {}

    @contextmanager
    def inject(self, source: Source) -> Iterator[None]:
        """Use `source` in this context, and remove it, and no other source, at its end."""
        context = object()
        try:
            self._source_by_context[context] = source
            yield
        finally:
            self._source_by_context.pop(context, None)

    def get_innermost(self) -> Source | None:
        """Return the source of the context that was entered last; None without an injection."""
        return next(reversed(self._source_by_context.values()), None)


noise_sources: InjectedSources[NoiseSource] = InjectedSources()

samplers: InjectedSources[Any] = InjectedSources()
"""Sources of Poisson samples: ``BernoulliSource``, which a module above this one defines."""
