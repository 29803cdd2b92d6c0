"""Durable writing of files, and a lock that ends with the process that holds it."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vicinal.declared_sizes import iterate_extents
from vicinal.errors import MissingExtra, StorageFailed, StoreInUse

PRIVATE_FILE = 0o600
"""Mode of files that only the user may read and write."""
PRIVATE_FOLDER = 0o700
"""Mode of folders that only the user may enter."""
ROOT_USER = 0
"""User id of the superuser."""
_MAX_WRITE_BYTES = 1 << 24
"""Maximal number of bytes in one write: 16 MiB."""


@contextmanager
def translate_os_errors(path: Path) -> Iterator[None]:
    """Raise StorageFailed, which names `path` and the cause, for an OSError of the body."""
    try:
        yield
    except OSError as error:
        if isinstance(error, StorageFailed):
            raise
        raise StorageFailed(
            f"{path} cannot be read or written ({error.strerror}). Nothing was answered. Check "
            "the disk, then open it again."
        ) from None


def sync_folder(folder: Path) -> None:
    """Make the creation, renaming and removal of files in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, content: bytes | memoryview, offset: int = 0) -> None:
    """Write all of `content` to an open file, from byte `offset` on.

    The system's call may write only a part without an error, for example on a nearly full disk, so
    it is repeated until everything is written or an error is raised.
    """
    remaining = memoryview(content)
    while remaining:
        n_written = os.pwrite(descriptor, remaining[:_MAX_WRITE_BYTES], offset)
        remaining = remaining[n_written:]
        offset += n_written


def overwrite_with_zeros(descriptor: int, start: int = 0) -> None:
    """Overwrite an open file durably with zeros, from byte `start` to its end; holes stay holes."""
    end = os.fstat(descriptor).st_size
    for extent_start, extent_end in iterate_extents(descriptor, start, end):
        for offset in range(extent_start, extent_end, _MAX_WRITE_BYTES):
            write_whole(descriptor, bytes(min(_MAX_WRITE_BYTES, extent_end - offset)), offset)
    os.fsync(descriptor)


def create_file(path: Path, flags: int) -> int:
    """Open a file that only its owner may read, created if it does not exist; return a descriptor.

    `flags`: those of `os.open` beside O_CREAT; links are refused. A file that root creates belongs
    to the owner of its folder.
    """
    flags |= os.O_CREAT | os.O_NOFOLLOW
    is_new = True
    try:
        descriptor = os.open(path, flags | os.O_EXCL, PRIVATE_FILE)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        descriptor = os.open(path, flags, PRIVATE_FILE)
        is_new = bool(flags & os.O_TRUNC)
    if is_new:
        _give_to_folder_owner(descriptor, path)
    return descriptor


def create_folder(path: Path) -> None:
    """Create a folder that only its owner may enter, and missing ancestors, unless it exists.

    Folders that root creates belong to the owner of the folder around them.
    """
    for folder in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        folder.mkdir(mode=PRIVATE_FOLDER if folder == path else 0o777, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        _give_to_folder_owner(descriptor, folder)
        os.close(descriptor)


def _give_to_folder_owner(descriptor: int, path: Path) -> None:
    """Give a new file or folder of root to the owner and group of the folder around it.

    Otherwise, a service could not read what a command of root writes into its store. A file with
    another hard link is left to root: a user may have linked a file of root's there.
    """
    status = os.fstat(descriptor)
    if os.geteuid() != ROOT_USER or status.st_uid != ROOT_USER:
        return
    if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
        folder_status = path.absolute().parent.stat()
        os.fchown(descriptor, folder_status.st_uid, folder_status.st_gid)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at `path` durably; after a crash it is the old or the new one, complete."""
    new_path = path.with_name(path.name + ".new")
    with translate_os_errors(path):
        descriptor = create_file(new_path, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new_path.replace(path)
        sync_folder(path.parent)


_WRITE_REFUSALS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Error numbers of an attempt to write to a read-only file system, or without permission."""


def is_writable(path: Path) -> bool:
    """Return whether this process may write a file, or create files in a folder."""
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def open_descriptor(path: Path, *, create: bool = False, accept_unwritable: bool = False) -> int:
    """Return a descriptor of a file that is open for reading and writing.

    `create`: create a missing file with :func:`create_file`. `accept_unwritable`: open a file for
    reading alone if this process may not write it.
    """
    try:
        return create_file(path, os.O_RDWR) if create else os.open(path, os.O_RDWR)
    except OSError as error:
        if not accept_unwritable or error.errno not in _WRITE_REFUSALS:
            raise
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW * create)


class Lock:
    """A lock on a file that lasts until :meth:`release` or the end of the process.

    `path`: the file, created if needed. The file alone, without a lock on it, has no meaning.
    `accept_unwritable`: also accept a file that this process may not write.

    Raises StoreInUse if another process holds the lock, as both could spend the same budgets.
    Raises MissingExtra if the operating system has no such locks.
    """

    def __init__(self, path: Path, *, accept_unwritable: bool = False) -> None:
        with translate_os_errors(path):
            self._descriptor = open_descriptor(
                path, create=True, accept_unwritable=accept_unwritable
            )
        try:
            lock_file(
                self._descriptor,
                path,
                f"Another process has {path.parent} open; two could spend the same budgets. "
                "Close that one first.",
            )
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def lock_file(descriptor: int, path: Path, refusal: str) -> None:
    """Lock an open file until it is closed.

    `path`: path of the file, for error messages. Raises StoreInUse with the message `refusal` if
    another process holds the lock; MissingExtra if the operating system has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        raise MissingExtra("Budgets on disk need POSIX file locks: Linux or macOS.") from None
    with translate_os_errors(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreInUse(refusal) from None
