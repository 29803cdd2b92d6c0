"""Make compiled code ready before a service listens, without a charge to anybody."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.errors import VicinalError
from vicinal.store import Query, Store
from vicinal.store._base_store import AnyStore

_LOG = logging.getLogger(__name__)
_RECORDS, _QUERIES = 64, 8
_SMALL = {"n_queries": _QUERIES, "n_records": _RECORDS, "n_neighbors": 8, "noise_multiplier": 10.0}


def warm_up(store: AnyStore) -> None:
    """Answer queries from stores of made-up rows, one a plan, in temporary folders.

    Compiled code then lies in memory, or is compiled: the first query need not wait for it. Only
    public facts of `store` are used: its width, classes, kernel, index and plans. Where made-up
    rows do not fit a plan, its first query waits.
    """
    for plan in store.plans:
        with tempfile.TemporaryDirectory() as folder:
            try:
                _answer_once(store, Path(folder) / "store", {**plan, **_SMALL})
            except VicinalError as error:
                _LOG.warning("The first query will wait for compiled code: %s", error)


def _answer_once(store: AnyStore, folder: Path, plan: dict[str, Any]) -> None:
    frame = store.schema
    rows = np.random.default_rng(0).random((3 * _RECORDS, frame.n_features))  # noqa: TID251 (no secret)
    private, public, queries = np.split(rows, 3)
    with Store.init(
        folder,
        private,
        np.resize(np.array(frame.classes, dtype=object), _RECORDS),
        classes=frame.classes,
        public=None if frame.public is None else public,
        kernel=frame.kernel,
        index=frame.index,
        norm_bound=frame.bound or "auto",
        **plan,
    ) as made:
        made.predict_many([Query(queries[:_QUERIES])])
