"""Who takes part in the rounds beside the labeller: extractors, students, and who trains them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from vicinal.accounting._guarantee import Guarantee

Examples = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
Step = Callable[[int], None]
Begin = Callable[[str, int], Step]
"""Announces a piece of work by name and size, and returns what to call as it proceeds."""

Guide = Callable[[], npt.NDArray[np.float32]]
"""Computes, when it is called, how likely every class is for all public examples, (m, c)."""


class FeatureExtractor(Protocol):
    """Makes features of examples, each from that example and public things alone."""

    def transform(self, examples: Examples, /) -> npt.NDArray[Any]:
        """Return features (n, d)."""
        ...


class StudentModel(FeatureExtractor, Protocol):
    """What was learnt from released answers; may be published."""

    def predict_proba(self, examples: Examples, /) -> npt.NDArray[Any]:
        """Return the probability of every class, (n, c)."""
        ...


AnyStudent = TypeVar("AnyStudent", bound=StudentModel)


class Learner(Protocol[AnyStudent]):
    """Trains students, and keeps them."""

    def learn(
        self,
        examples: Examples,
        rows: Places,
        labels: Places,
        number: int,
        begin: Begin,
        guide: Guide | None = None,
    ) -> AnyStudent:
        """Return a student trained on answers about `rows` of public examples, for round `number`.

        `labels` are positions of classes; `guide()` returns what all answers together say of all
        examples, see :func:`vicinal.labelling._soft_labels.soft_labels`. Nothing else may be
        learnt from.
        """
        ...

    def save(self, student: AnyStudent, path: Path, guarantee: Guarantee) -> None:
        """Write a student so that a kill leaves the whole file or none."""
        ...

    def load(self, path: Path) -> AnyStudent:
        """Return the student in a file."""
        ...
