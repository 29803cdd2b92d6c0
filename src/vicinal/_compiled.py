"""One decorator for compiled functions, whose cache cannot go stale.

numba keys its on-disk cache by the file of the compiled function alone. A compiled function that
calls one in another file would keep an old copy of it after an edit or an update, which is not
acceptable for code that charges budgets. Here the cache of a file lies in a folder named after a
digest of that file and of all files of this package that it imports, directly or by others: what
is compiled into a function comes from nowhere else. A change to any of them starts a new folder,
and files that import none of them keep theirs.

Cached code is run as it is found. So it is written to, and read from, a directory that no other
account can write to or replace: neither the directory nor any of its ancestors.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache

from vicinal._lazy import declared_exports
from vicinal._private_folders import find_exposed_folder, make_private_folder
from vicinal._progress import compile_watchers

_PACKAGE = Path(__file__).parent

_IMPORT = re.compile(
    rf"^[ \t]*(?:from[ \t]+({_PACKAGE.name}[.\w]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)"
    rf"|import[ \t]+({_PACKAGE.name}[.\w]*))",
    re.MULTILINE,
)
"""Imports of this package, as its house rules have them: absolute, one to a line."""

_NO_NAME = r"#.*| as \w+"


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
        make_private_folder(Path(self.cache_path))  # numba would follow the umask

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
def _source_digest(source: Path) -> str:
    """Return a digest of everything that compiled functions of a file can be made of."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for path in sorted(sources(source)):
        text = path.read_bytes()
        digest.update(f"{path.name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:16]


def sources(source: Path) -> set[Path]:
    """Return a file and all files of this package that it imports, directly or by others."""
    known, new = set(), {source}
    while new:
        known |= new
        new = {path for one in new for path in _imported(one)} - known
    return known


@cache
def _imported(source: Path) -> frozenset[Path]:
    """Return the files of this package that one of its files imports itself, or more."""
    files: set[Path] = set()
    for module, names, plain in _IMPORT.findall(source.read_text(encoding="utf-8")):
        files.update(_files(module or plain, re.findall(r"\w+", re.sub(_NO_NAME, "", names))))
    return frozenset(files)


def _files(module: str, names: list[str]) -> Iterator[Path]:
    """Yield where names of a module are defined: for those of a package, all that lies in it."""
    place = _PACKAGE.parent.joinpath(*module.split("."))
    if not place.is_dir():
        yield place.with_suffix(".py")
        return
    exports, _ = declared_exports(place)
    for name in names:
        if name in exports:
            yield from _files(exports[name], [name])
        elif (place / f"{name}.py").is_file():
            yield place / f"{name}.py"
        else:
            yield from (place / name if (place / name).is_dir() else place).rglob("*.py")
    if not names:
        yield from place.rglob("*.py")


def _cache_folder(source: Path) -> str:
    """Return the private directory for the compiled code of a file, or "" for no caching."""
    base = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        # Resolved, so that no symbolic link is followed after the check.
        folder = Path(base).expanduser().resolve() / "vicinal"
        folder = make_private_folder(folder) / f"kernels-{_source_digest(source)}"
        make_private_folder(folder)
    except (OSError, RuntimeError):  # RuntimeError: there is no home directory
        return ""
    return str(folder) if _is_private(folder) and os.access(folder, os.W_OK) else ""


def _is_private(folder: Path) -> bool:
    """Return whether no other account can change what a directory holds; warn once if one can."""
    exposed = find_exposed_folder(folder)
    if exposed is not None and exposed not in _reported:
        _reported.add(exposed)
        warnings.warn(
            "Compiled code is not kept on disk, so each process compiles it again: another account "
            f"owns {exposed} or can write to it. Take the write permission of others away "
            f"(chmod go-w {exposed}), or set XDG_CACHE_HOME to a directory that only you can "
            "write to.",
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
