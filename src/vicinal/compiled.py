"""Decorator for functions compiled by numba, with a cache on disk that is never outdated.

numba detects changes of the compiled function's own file only. A function that calls one in another
file would keep an old copy of it after an update, which is not acceptable for code that charges
budgets. Here the cache's folder is named after a digest of all sources of compiled code
(:data:`KERNEL_SOURCES`), so a change of any of them starts a new folder.

Cached code is executed without a check of its content. So it is written to and read from a
directory that no other account can write to or replace, including its ancestors.
"""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from vicinal.errors import warn_caller
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
    "smoothed/_outcomes.py",
    "smoothed/_pairs.py",
    "smoothed/average.py",
    "smoothed/intervals.py",
    "smoothed/knn.py",
)
"""Files below src/vicinal whose functions or constants become part of compiled code.

tests/ground/test_compiled.py derives the same list from the functions themselves.
"""


def compiled(function: Callable[..., Any]) -> Any:
    """Decorator: compile a function at its first call, without the GIL, and cache it on disk."""
    folder = _find_cache_folder(Path(function.__code__.co_filename))
    previous_folder = numba.config.CACHE_DIR
    _compilations.n_functions += 1
    try:
        # numba reads this when it creates the function's cache; other functions are not affected.
        numba.config.CACHE_DIR = folder or previous_folder
        dispatcher = numba.njit(nogil=True)(function)
        if folder:
            with suppress(OSError):  # without a cache if the directory has been removed
                dispatcher._cache = _PrivateCache(function)
        return dispatcher
    finally:
        numba.config.CACHE_DIR = previous_folder


class _PrivateCache(FunctionCache):
    """The compiled versions of one function on disk, used only while the directory is private.

    The directory is checked at every access, because modes and owners may change after the import.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        # numba creates the directory with the umask's mode, in a parent that is private.
        Path(self.cache_path).chmod(PRIVATE_MODE)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled version for the argument types `sig` from the disk, for numba.

        None if there is none, or if the directory is not private.
        """
        if not _is_private(Path(self.cache_path)):
            return None
        return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store `data`, the compiled version for `sig`, for numba, if the directory is private."""
        if _is_private(Path(self.cache_path)):
            super().save_overload(sig, data)


@cache
def compute_source_digest(source: Path) -> str:
    """Return 16 hexadecimal digits of a digest of `source`, this module and `KERNEL_SOURCES`."""
    files = {_PACKAGE / name for name in KERNEL_SOURCES} | {source, Path(__file__)}
    digest = hashlib.sha256()
    for path in sorted(files):
        text = path.read_bytes()
        digest.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]


def _find_cache_folder(source: Path) -> str:
    """Return the private directory for the compiled code of the file `source`; "": no caching."""
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        # Resolved here, so that no symbolic link is followed after the check.
        folder = Path(base).expanduser().resolve() / "vicinal"
        folder = make_private_folder(folder) / f"kernels-{compute_source_digest(source)}"
        make_private_folder(folder)
    except (OSError, RuntimeError):  # A missing home directory is a RuntimeError.
        return ""
    return str(folder) if _is_private(folder) and os.access(folder, os.W_OK) else ""


def _is_private(folder: Path) -> bool:
    """Return whether a directory exists and no other account can change its content.

    No other account may be able to replace the directory or an ancestor, or own one of its files.
    Warns once about each directory that another account can change.
    """
    try:
        exposed = find_exposed_folder(folder) or find_foreign_file(folder)
    except OSError:
        return False
    if exposed is not None and exposed not in _reported:
        _reported.add(exposed)
        warn_caller(
            "Compiled code is not kept on disk, so each process compiles it again: another account "
            f"owns {exposed} or can write to it. Take the write permission of others away "
            f"(chmod go-w {exposed}) and delete the directory vicinal there, or set XDG_CACHE_HOME "
            "to a directory that only you can write to."
        )
    return exposed is None


_reported: set[Path] = set()
"""Directories named in this process's warnings."""


class _Compilations(event.Listener):
    """Counter, by numba's events, of this package's compiled functions for `compile_watchers`."""

    n_functions = n_compiled = 0

    def on_start(self, event: Any) -> None:
        """Do nothing, because a function is counted when its compilation ends."""

    def on_end(self, event: Any) -> None:
        """Count and report the compilation of a function of this package."""
        if event.data["dispatcher"].py_func.__module__.partition(".")[0] != _PACKAGE.name:
            return
        self.n_compiled += 1
        for watch in compile_watchers:
            watch(self.n_compiled, self.n_functions)


_compilations = _Compilations()
event.register("numba:compile", _compilations)
