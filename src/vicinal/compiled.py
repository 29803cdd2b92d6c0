"""One decorator for compiled functions, whose cache cannot go stale.

numba keys its on-disk cache by the file of the compiled function alone. A compiled function that
calls one in another file would keep an old copy of it after an edit or an update, which is not
acceptable for code that charges budgets. Here the cache lies in a folder named after a digest of
all files that anything is compiled from, :data:`KERNEL_SOURCES`: a change to any of them starts a
new folder.

Cached code is run as it is found. So it is written to, and read from, a directory that no other
account can write to or replace: neither the directory nor any of its ancestors.
"""

import hashlib
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from vicinal.private_folders import (
    PRIVATE_MODE,
    find_exposed_folder,
    find_foreign_file,
    make_private_folder,
)
from vicinal.progress import compile_watchers

_PACKAGE = Path(__file__).parent

KERNEL_SOURCES = (
    "accounting/budget.py",
    "accounting/charges.py",
    "accounting/label_filter.py",
    "features/hog.py",
    "linear/_random_trees.py",
    "linear/kernel_map.py",
    "linear/model_features.py",
    "mechanisms/charging.py",
    "mechanisms/count.py",
    "mechanisms/gradients.py",
    "mechanisms/linear_model.py",
    "mechanisms/private_knn.py",
    "mechanisms/subject_table.py",
    "neighbours/engines/_amx.py",
    "neighbours/engines/_choice.py",
    "neighbours/engines/_intrinsics.py",
    "neighbours/engines/_vnni.py",
    "neighbours/engines/int16.py",
    "neighbours/hashing.py",
    "neighbours/kernels.py",
    "neighbours/poisson_knn.py",
    "neighbours/radius.py",
    "neighbours/scan.py",
    "noise/_gaussian.py",
    "noise/_gaussian_exact.py",
    "noise/_uniform_bits.py",
    "noise/bernoulli.py",
    "noise/poisson_sample.py",
    "prefetch.py",
    "smoothed/_edges.py",
    "smoothed/average.py",
    "smoothed/intervals.py",
    "smoothed/knn.py",
)
"""Files below src/vicinal whose functions or constants become part of compiled code.

tests/ground/test_compiled.py derives the same list from the functions themselves.
"""


def compiled(function: Callable[..., Any]) -> Any:
    """Compile `function` on first use, without the GIL, and keep the result on disk."""
    folder = _cache_folder(Path(function.__code__.co_filename))
    before = numba.config.CACHE_DIR
    _compilations.n_functions += 1
    try:
        # Read once, when the function's cache is set up; the user's own functions never see it.
        numba.config.CACHE_DIR = folder or before
        dispatcher = numba.njit(nogil=True)(function)
        if folder:
            with suppress(OSError):  # the directory was removed in between: compile without
                dispatcher._cache = _PrivateCache(function)
        return dispatcher
    finally:
        numba.config.CACHE_DIR = before


class _PrivateCache(FunctionCache):
    """The compiled forms of one function on disk, used only while the directory is private.

    The directory is checked at every access, because modes and owners may change after the import.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # numba follows the umask here; nobody else could reach the directory, which is new and in a
        # private one.
        Path(self.cache_path).chmod(PRIVATE_MODE)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled form for a signature; None if there is none, or it may be foreign."""
        if _is_private(Path(self.cache_path)):
            return super().load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the compiled form for a signature, if the directory is private."""
        if _is_private(Path(self.cache_path)):
            super().save_overload(sig, data)


@cache
def compute_source_digest(source: Path) -> str:
    """Return a digest of everything that compiled functions of a file can be made of.

    `source`: the file; one that is not in :data:`KERNEL_SOURCES` counts in addition to those.
    """
    files = {_PACKAGE / name for name in KERNEL_SOURCES} | {source, Path(__file__)}
    digest = hashlib.sha256()
    for path in sorted(files):
        text = path.read_bytes()
        digest.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]


def _cache_folder(source: Path) -> str:
    """Return the private directory for the compiled code of a file, or "" for no caching."""
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        # Resolved, so that no symbolic link is followed after the check.
        folder = Path(base).expanduser().resolve() / "vicinal"
        folder = make_private_folder(folder) / f"kernels-{compute_source_digest(source)}"
        make_private_folder(folder)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return ""
    return str(folder) if _is_private(folder) and os.access(folder, os.W_OK) else ""


def _is_private(folder: Path) -> bool:
    """Return whether no other account can change what a directory holds; warn once if one can.

    False, too, if the directory is gone.
    """
    try:
        exposed = find_exposed_folder(folder) or find_foreign_file(folder)
    except OSError:
        return False
    if exposed is not None and exposed not in _reported:
        _reported.add(exposed)
        warnings.warn(
            "Compiled code is not kept on disk, so each process compiles it again: another account "
            f"owns {exposed} or can write to it. Take the write permission of others away "
            f"(chmod go-w {exposed}) and delete the directory vicinal there, or set XDG_CACHE_HOME "
            "to a directory that only you can write to.",
            UserWarning,
            stacklevel=2,
        )
    return exposed is None


_reported: set[Path] = set()
"""Directories that a warning has named in this process."""


class _Compilations(event.Listener):
    """Tells whoever watches how many functions of this package were compiled."""

    n_functions = n_compiled = 0

    def on_start(self, event: Any) -> None:
        """What is compiled counts when it is done."""

    def on_end(self, event: Any) -> None:
        if event.data["dispatcher"].py_func.__module__.partition(".")[0] != _PACKAGE.name:
            return
        self.n_compiled += 1
        for watch in compile_watchers:
            watch(self.n_compiled, self.n_functions)


_compilations = _Compilations()
event.register("numba:compile", _compilations)
