"""Tensors of a file in torch's older format, read without torch and without running its code.

The format (torch before 1.6): four pickles, of which the last is the state dict with its storages
named by ids, then the list of ids, then every storage as a count and its numbers. The unpickler
knows four names, and refuses any other: like ``weights_only=True``, it can make tensors and nothing
else.
"""

from __future__ import annotations

import pickle  # noqa: TID251 (its parser only: four names, and a known hash before)
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from vicinal._arrays import AnyArray
from vicinal.errors import InvalidInput

_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


class _Tensor:
    """A view of a storage whose numbers come later in the file."""

    def __init__(
        self,
        storage: tuple[str, np.dtype[Any]],
        offset: int,
        shape: Sequence[int],
        strides: Sequence[int],
        *_: object,
    ) -> None:
        self.key, self.dtype = storage
        self.offset, self.shape, self.strides = offset, tuple(shape), tuple(strides)

    def of(self, storages: dict[str, AnyArray]) -> AnyArray:
        """Return the numbers, contiguous; raise ValueError for a place outside the storage."""
        steps = [np.arange(n) * s for n, s in zip(self.shape, self.strides, strict=True)]
        places = np.full(self.shape, self.offset)
        for axis, step in enumerate(steps):
            places += step.reshape(-1, *[1] * (len(steps) - 1 - axis))
        if places.size and not 0 <= places.min() <= places.max() < len(storages[self.key]):
            raise ValueError
        return np.asarray(storages[self.key][places])


class _TensorUnpickler(pickle.Unpickler):
    """Makes views of storages, and dictionaries of them."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the known names."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name in _TYPES:
            return _TYPES[name]
        raise pickle.UnpicklingError

    def persistent_load(self, pid: Any) -> tuple[str, np.dtype[Any]]:
        """Return the id of a storage, and what its numbers are."""
        _, dtype, key, *_ = pid
        return str(key), dtype


def read_weights(path: Path) -> dict[str, AnyArray]:
    """Return the tensors of a state dict by name; a file that holds anything else is refused."""
    try:
        with path.open("rb") as file:
            return _tensors(file)
    except (pickle.UnpicklingError, ValueError, TypeError, KeyError, EOFError, AttributeError):
        raise InvalidInput(f"{path} holds no weights in torch's older format.") from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}.") from None


def _tensors(file: IO[bytes]) -> dict[str, AnyArray]:
    magic, _version, _system, state, keys = (_TensorUnpickler(file).load() for _ in range(5))
    if magic != _MAGIC:
        raise ValueError
    dtypes = {tensor.key: tensor.dtype for tensor in state.values()}
    storages = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        content = file.read(count * dtypes[key].itemsize)
        storages[key] = np.frombuffer(content, dtypes[key], count)
    return {str(name): tensor.of(storages) for name, tensor in state.items()}
