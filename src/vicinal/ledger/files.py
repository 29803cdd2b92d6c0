"""Durable writing of files, and a lock that ends with the process that holds it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """Return a context that raises StorageFailed for an OSError of its body.

    `path`: the file or folder that the message names, with the cause.
    """
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
    """Write all of `content` to an open file, given by its descriptor, from byte `offset` on.

    The system's call may write only a part without an error, for example on a nearly full disk, so
    it is repeated.
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


def create_file(
    path: Path, flags: int, *, owner: int | None = None, replaced: str | None = None
) -> int:
    """Open a file, created for its owner alone if it does not exist; return a descriptor.

    The file belongs to this process's user. Only root gives a file that it creates to another user:
    to the owner of the file that it replaces, or else of the folder around it.

    - `flags`: flags of `os.open` besides O_CREAT; symbolic links are refused.
    - `owner`: user id of the only account that may get the file, which is the owner of an existing
      store; None for the owner of a replaced file alone.
    - `replaced`: name of the file in the same folder that the new file will replace.
    """
    flags |= os.O_CREAT | os.O_NOFOLLOW
    is_given = os.geteuid() == ROOT_USER and (owner is not None or replaced is not None)
    if not is_given:
        return os.open(path, flags, PRIVATE_FILE)
    # One descriptor of the folder, because its owner could exchange what the path leads to.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            descriptor = os.open(path.name, flags | os.O_EXCL, PRIVATE_FILE, dir_fd=folder)
        except FileExistsError:
            return os.open(path.name, flags, PRIVATE_FILE, dir_fd=folder)
        heir = _find_heir(folder, owner, replaced)
        if heir is not None:
            # Some file systems and containers allow no change of owners: root keeps the file.
            with suppress(OSError):
                os.fchown(descriptor, heir.st_uid, heir.st_gid)
        return descriptor
    finally:
        os.close(folder)


def _find_heir(folder: int, owner: int | None, replaced: str | None) -> os.stat_result | None:
    """Return the status of the file or folder whose owner gets a new file of root; None if nobody.

    A replaced file of root has no effect: in the store of another account an earlier command left
    it, and the account's service could not use it.

    `folder`: descriptor of the folder around the new file. `owner`: user id of the only account
    that may get it; None: the owner of a replaced file alone. `replaced`: name of the file that
    will be replaced, or None.
    """
    status = os.fstat(folder) if owner is not None else None
    if replaced is not None:
        with suppress(FileNotFoundError):
            replaced_status = os.stat(replaced, dir_fd=folder, follow_symlinks=False)
            if replaced_status.st_uid != ROOT_USER:
                status = replaced_status
    return status if status is None or owner in (None, status.st_uid) else None


def name_replacement(path: Path) -> Path:
    """Return the path of the new file that will replace the file at `path` by renaming."""
    return path.with_name(path.name + ".new")


def create_replacement(path: Path, *, owner: int | None = None) -> int:
    """Create the empty file that will replace the file at `path`, and return its descriptor.

    Its path is :func:`name_replacement` of `path`; a file that an interrupted command left there is
    removed. If root calls, the new file gets the owner of the file at `path`. `owner`: user id of
    the only account that may get a new file; None for the owner of an existing one.
    """
    new_path = name_replacement(path)
    new_path.unlink(missing_ok=True)
    return create_file(new_path, os.O_RDWR | os.O_EXCL, owner=owner, replaced=path.name)


def replace_file(path: Path, content: bytes, *, owner: int | None = None) -> None:
    """Replace the file at `path` durably; after a crash it is the old or the new one, complete.

    `content`: the whole new content. `owner`: if root calls, user id of the only account that may
    get a new file; None for the owner of an existing one.
    """
    with translate_os_errors(path):
        descriptor = create_replacement(path, owner=owner)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        name_replacement(path).replace(path)
        sync_folder(path.parent)


_WRITE_REFUSALS = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Error numbers of an attempt to write to a read-only file system, or without permission."""


def is_writable(path: Path | str, *, folder: int | None = None) -> bool:
    """Return whether this process may write the file, or create files in the folder, at `path`.

    `folder`: descriptor of an open folder, in which a relative `path` is looked up; None for the
    current folder.
    """
    is_effective = os.access in os.supports_effective_ids
    return os.access(path, os.W_OK, dir_fd=folder, effective_ids=is_effective)


def open_descriptor(
    path: Path,
    *,
    create: bool = False,
    owner: int | None = None,
    accept_unwritable: bool = False,
    follow_link: bool = False,
) -> int:
    """Return a descriptor of a file that is open for reading and writing.

    `create`: create a missing file with :func:`create_file`, which describes `owner`.
    `accept_unwritable`: open the file read-only if this process may not write it; otherwise an
    OSError is raised. `follow_link`: open the target of a symbolic link, unless `create` is set;
    otherwise a link raises OSError.
    """
    no_link = 0 if follow_link else os.O_NOFOLLOW
    try:
        if create:
            return create_file(path, os.O_RDWR, owner=owner)
        return os.open(path, os.O_RDWR | no_link)
    except OSError as error:
        if not accept_unwritable or error.errno not in _WRITE_REFUSALS:
            raise
        return os.open(path, os.O_RDONLY | no_link)


class Lock:
    """A lock on a file that lasts until :meth:`release` or the end of the process.

    `path`: the file, created if needed; only the lock on it counts. `owner`: user id that
    :func:`create_file` describes. `accept_unwritable`: lock the file also if this process may not
    write it. Raises StoreInUse if another process holds the lock, as both could spend the same
    budgets. Raises MissingExtra if the operating system has no such locks.
    """

    def __init__(
        self, path: Path, *, owner: int | None = None, accept_unwritable: bool = False
    ) -> None:
        self._path = path
        with translate_os_errors(path):
            self._descriptor = open_descriptor(
                path, create=True, owner=owner, accept_unwritable=accept_unwritable
            )
        try:
            refusal = (
                f"Another process has {path.parent} open; two could spend the same budgets. "
                "Close that one first."
            )
            lock_file(self._descriptor, path, refusal)
            with translate_os_errors(path):
                # The process that held the lock until now may have removed the file.
                is_removed = not os.path.lexists(path)
                if is_removed or not os.path.samestat(path.lstat(), os.fstat(self._descriptor)):
                    raise StoreInUse(refusal)
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Release the lock by closing the file, which stays on the disk."""
        os.close(self._descriptor)

    def remove(self) -> None:
        """Remove the file from the disk, and release the lock."""
        try:
            with suppress(OSError):  # a file that stays locks nothing
                self._path.unlink()
        finally:
            self.release()


def lock_file(descriptor: int, path: Path, refusal: str) -> None:
    """Lock an open file exclusively, without waiting, until it is closed.

    `descriptor`: of the open file. `path`: its path, for error messages. Raises StoreInUse with the
    message `refusal` if another process holds the lock; MissingExtra if the operating system has no
    such locks.
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
