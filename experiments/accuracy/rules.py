"""Rules of the private model tried side by side: each training is done once for all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from vicinal.predictors.ind_knn import _model_rule, _private_model
from vicinal.predictors.ind_knn._model_rule import ModelRule
from vicinal.predictors.ind_knn._private_model import PrivateModel

_train = _private_model.train


class Trainings:
    """Models that were trained on the records of one trial, with the budgets that they left."""

    def __init__(self) -> None:
        self._records: object = None
        self._kept: dict[Hashable, tuple[PrivateModel, npt.NDArray[Any]]] = {}

    @contextmanager
    def forced(self, rule: ModelRule | None, records: object, setting: Hashable) -> Iterator[None]:
        """Take this rule instead of the one that public facts choose; theirs for None.

        A model that was trained with the same share on the same records in the same setting is
        taken again, until other records come.
        """
        if records is not self._records:
            self._records = records
            self._kept.clear()

        def trained(settings: Any, X: Any, people: Any, *rest: Any) -> PrivateModel:
            place = setting, settings.trained_share
            if place not in self._kept:
                model = _train(settings, X, people, *rest)
                self._kept[place] = model, np.array(people.remaining)
            model, remaining = self._kept[place]
            people.remaining[:] = remaining
            return PrivateModel(
                model.model, rest[1], model.used, settings.class_shares, settings.model_rule
            )

        with ExitStack() as stack:
            if rule is not None:
                stack.enter_context(
                    mock.patch.object(_model_rule, "chosen_rule", return_value=rule)
                )
            stack.enter_context(mock.patch.object(_private_model, "train", trained))
            yield
