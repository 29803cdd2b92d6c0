"""Features of public data, each computed once: kept in a folder under a name made of their content.

Of public data only: kept features outlive what they were made of.
"""

import hashlib
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.trials import Benchmark
from vicinal.errors import InvalidInput

Vectors = npt.NDArray[np.float32]


def cached(
    folder: Path, name: str, content: bytes, size: int, make: Callable[[], Vectors]
) -> Vectors:
    """Return features (size, d), from the folder if they were made of this `content` before.

    - `folder`: where they are kept.
    - `name`: how their files begin.
    - `content`: all that they depend on.
    - `size`: how many rows there are.
    - `make`: makes them.

    Raises InvalidInput if the file that should hold them holds something else.
    """
    stored = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.npz"
    if stored.is_file():
        return _stored(stored, size)
    vectors = make()
    unfinished = stored.with_suffix(f".{os.getpid()}.part.npz")  # several may write at a time
    np.savez(unfinished, features=vectors)
    unfinished.replace(stored)
    return vectors


def vectors_npz(path: Path) -> Benchmark:
    """Return a benchmark of features that were extracted before.

    - `path`: an .npz with x_train (n, d), y_train (n,), x_test (m, d), y_test (m,); steps (d,),
      which columns are multiples of; n_components and power, of the public map.

    Raises InvalidInput if it holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            rows = [file[name] * file["steps"] for name in ("x_train", "x_test")]
            labels = [file[name].astype(np.int64) for name in ("y_train", "y_test")]
            learnt = {"n_components": int(file["n_components"]), "power": float(file["power"])}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        raise InvalidInput(f"{path} holds no features with labels.") from None
    classes = range(int(max(part.max() for part in labels)) + 1)
    return Benchmark(classes, rows[0], labels[0], rows[1], labels[1], learnt)


def _stored(path: Path, size: int) -> Vectors:
    try:
        with np.load(path, allow_pickle=False) as file:
            vectors = file["features"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        vectors = None
    if vectors is None or len(vectors) != size:
        raise InvalidInput(f"{path} holds no features of these data. Delete it to start again.")
    return np.asarray(vectors, dtype=np.float32)
