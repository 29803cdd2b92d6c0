"""Networks that onnxruntime runs on one thread a record."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray
from vicinal._lazy import of_extra
from vicinal.errors import InvalidInput
from vicinal.features._fixed import FixedRowFeatures, LoadedOnce, Vectors, one_by_one
from vicinal.neighbours import THREADS

Row = TypeVar("Row")

_SIDE_BY_SIDE = 64


def session_of(runtime: Any, model: bytes | str) -> Any:
    """Return a session of onnxruntime, of a model or of a file's path, on one thread.

    The order of sums must not hang on how many cores are free.
    """
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def side_by_side(rows: Sequence[Row], embed: Callable[[Row], Vectors]) -> Iterator[Vectors]:
    """Yield the embeddings of consecutive rows; each is one thread's, which cores share."""
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(rows), _SIDE_BY_SIDE):
            yield np.stack(list(pool.map(embed, rows[start : start + _SIDE_BY_SIDE])))


_TYPES: dict[str, type[np.generic]] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(uint8)": np.uint8,
    "tensor(int64)": np.int64,
}
_PART = 256


class _LoadedSession(NamedTuple):
    """A session with the one input that it has."""

    session: Any
    input: str
    dtype: type[np.generic]
    shape: tuple[int | None, ...]


class OnnxFeatures(LoadedOnce["_LoadedSession"], FixedRowFeatures):
    """The first output of a fixed, public ONNX network, for every record by itself.

    Parameters
    ----------
    model
        The .onnx file. One input (n, ...), the records; the first output is (n, ...), flattened to
        one row a record. What :func:`vicinal.students.save_onnx` writes is such a file.

    Notes
    -----
    Every record goes through the network alone and by one thread, so what comes out is the same bit
    for bit whichever other records are passed. It is a function of one record and costs no
    privacy. Equality across machines or versions of onnxruntime does not hold: compute records and
    queries with one installation.

    The network must have been trained without the private records, or with a guarantee of its own,
    which then adds to that of the answers.

    Examples
    --------
    >>> from vicinal import OnnxFeatures
    >>> network = OnnxFeatures("encoder.onnx")  # doctest: +SKIP
    >>> network.transform(rows).shape  # doctest: +SKIP
    (100, 64)
    """

    def __init__(self, model: str) -> None:
        self.model = model

    @property
    def input_shape(self) -> tuple[int | None, ...]:
        """Shape of one record; None where the network takes any size.

        Raises
        ------
        InvalidInput, MissingExtra
            As :meth:`transform`.
        """
        return self._network().shape

    def _checked(self, rows: npt.ArrayLike) -> AnyArray:
        return _checked(rows, self._network())

    def _parts(self, rows: AnyArray) -> Iterable[Vectors]:
        return one_by_one(rows, partial(_computed, self._network()), _PART)

    def _network(self) -> _LoadedSession:
        return self._loaded_once(self.model, lambda: _load(Path(self.model)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _checked(rows: npt.ArrayLike, loaded: _LoadedSession) -> AnyArray:
    """Return rows as the network's numbers, or say what is wrong with them; repeats no value."""
    _checks.unmasked("rows", rows)
    try:
        values = np.asarray(rows)
    except ValueError:
        raise InvalidInput("The rows must all have the same shape.") from None
    if values.dtype.kind not in "buif" or values.ndim < 1 or len(values) == 0:
        raise InvalidInput("The rows must be an array of at least one record, of numbers.")
    fits = len(loaded.shape) == values.ndim - 1 and all(
        size in (None, actual) for size, actual in zip(loaded.shape, values.shape[1:], strict=True)
    )
    if not fits or values.size == 0:
        shape = " x ".join("any" if size is None else str(size) for size in loaded.shape)
        raise InvalidInput(f"Every row must have the shape that the network takes: {shape}.")
    return _as_type(values, loaded.dtype)


def _as_type(values: AnyArray, dtype: type[np.generic]) -> AnyArray:
    if not np.isfinite(values).all():
        raise InvalidInput("The rows must hold finite numbers only.")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    is_integer = np.issubdtype(dtype, np.integer)
    if not np.isfinite(cast).all() or (is_integer and not np.array_equal(cast, values)):
        raise InvalidInput(f"The rows must hold numbers that fit the network's {cast.dtype}.")
    return cast


def _computed(loaded: _LoadedSession, row: AnyArray) -> Vectors:
    """Return the output (d,) for one row."""
    try:
        outputs = loaded.session.run(None, {loaded.input: row[None]})[0]
        vector = np.asarray(outputs, dtype=np.float32)
    except Exception as error:
        # onnxruntime's own errors have no common class, and their messages may hold shapes only.
        raise InvalidInput("The network cannot compute a row of this shape.") from error
    if vector.shape[:1] != (1,) or vector.size == 0 or not np.isfinite(vector).all():
        raise InvalidInput("The network's first output must be finite numbers, a row per record.")
    return vector.ravel()


def _load(model: Path) -> _LoadedSession:
    """Return a session for the file."""
    onnxruntime = of_extra("onnx", "onnxruntime", "OnnxFeatures")
    if not model.is_file():
        raise InvalidInput(f"The 'model' parameter must be an ONNX file. There is none at {model}.")
    try:
        session = session_of(onnxruntime, str(model))
    except Exception as error:
        # Its errors have no common class.
        raise InvalidInput(f"{model} is not an ONNX network that onnxruntime can run.") from error
    return _described(session)


def _described(session: Any) -> _LoadedSession:
    inputs = session.get_inputs()
    if len(inputs) != 1 or inputs[0].type not in _TYPES or len(inputs[0].shape) < 2:
        raise InvalidInput(
            "The network must have one input (n, ...) of numbers: " + ", ".join(_TYPES) + "."
        )
    shape = tuple(size if isinstance(size, int) else None for size in inputs[0].shape[1:])
    return _LoadedSession(session, inputs[0].name, _TYPES[inputs[0].type], shape)
