"""Make compiled code ready before a service listens, without a charge to anybody."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from vicinal.serving._store_protocol import ServedStore
from vicinal.store import Query, Store

_RECORDS, _QUERIES = 64, 8


def warm_up(store: ServedStore) -> None:
    """Answer queries from a store of made-up rows of the same width, in a temporary folder.

    Compiled code then lies in memory, or is compiled: the first query need not wait for it. Only
    public facts of `store` are used: its width, classes, kernel, index, and each plan's release.
    """
    plans = store.facts()["audiences"].values()
    for release in sorted({found["plan"]["release"] for found in plans}):
        with tempfile.TemporaryDirectory() as folder:
            _answer_once(store, Path(folder) / "store", release)


def _answer_once(store: ServedStore, folder: Path, release: str) -> None:
    frame = store.frame
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
        n_records=_RECORDS,
        n_queries=_QUERIES,
        n_neighbors=_QUERIES,
        noise_multiplier=10.0,
        release=release,
    ) as made:
        made.predict_many([Query(queries[:_QUERIES])])
