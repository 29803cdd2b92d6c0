"""Output files, whose paths users choose: checked before the work, and replaced when complete."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from vicinal.errors import InvalidInput, OutputFailed
from vicinal.ledger.files import PRIVATE_FILE, is_writable

_PROBE_BYTES = 1 << 16
"""Free bytes that an output needs before anything is charged: more than most commands write."""
_FULL_DEVICE = Path("/dev/full")
_PUBLIC_FILE = 0o666
"""Mode of a new output; the system removes the permissions of the user's umask from it."""
_NAME_BYTES = 8
"""Random bytes in the name of a temporary file; with so many, no two names ever agree."""

_IN_PLACE_ERRNOS = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS)
"""Error numbers of replacing a file that may nevertheless be writable: it is mounted into a
container, or it or its folder belongs to another account."""


class _Target(NamedTuple):
    """Where an output is written: the folder is opened once, so that nobody can exchange it.

    `folder`: descriptor of the folder. `name`: name in it, no link. `status`: of the existing
    regular file with this name; None if there is none.
    """

    folder: int
    name: str
    status: os.stat_result | None


def check_output(path: Path) -> None:
    """Raise InvalidInput if `path` cannot be written now; nothing is changed.

    Of a pipe only the permission is checked: its reader would take a trial for the whole output.
    """
    try:
        if _is_special(path):
            if not path.is_fifo():
                descriptor = os.open(path, os.O_WRONLY)
                try:
                    check_free_space(descriptor)
                finally:
                    os.close(descriptor)
            elif not is_writable(path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        with _open_target(path) as target:
            if target.status is not None:
                descriptor = _open_existing(target)
                try:
                    check_free_space(descriptor)
                finally:
                    os.close(descriptor)
            with _accept_in_place(target), _write_beside(target, bytes(_PROBE_BYTES)):
                pass
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def check_free_space(descriptor: int) -> None:
    """Raise OSError if an open file is the device /dev/full, or a regular file on a full disk."""
    status = os.fstat(descriptor)
    if stat.S_ISCHR(status.st_mode) and _FULL_DEVICE.exists():
        is_full = status.st_rdev == _FULL_DEVICE.stat().st_rdev
    elif stat.S_ISREG(status.st_mode) and os.name != "nt":
        disk = os.fstatvfs(descriptor)
        # Files in memory are on a disk without a size.
        is_full = disk.f_blocks > 0 and disk.f_bavail * disk.f_frsize < _PROBE_BYTES
    else:
        is_full = False
    if is_full:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_output(path: Path, content: bytes) -> None:
    """Write `content` to `path` durably. Raises OutputFailed on failure.

    An earlier file keeps its owner and mode, and is replaced once the new one is complete. It is
    written in place if it cannot be replaced; so are devices and pipes. A link keeps its target.
    """
    try:
        if _is_special(path):
            with path.open("wb") as file:
                file.write(content)
            return
        with _open_target(path) as target:
            with _accept_in_place(target), _write_beside(target, content) as new_name:
                folder = target.folder
                os.replace(new_name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
                return
            with os.fdopen(_open_existing(target), "wb") as file:
                file.truncate()
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise OutputFailed(f"{path} cannot be written: {error.strerror}.") from None


def _is_special(path: Path) -> bool:
    """Return whether `path` exists, but is no regular file: a pipe, a device or a folder.

    Raises PermissionError if a pipe, or a link on the way, was made by another account that could
    redirect the output.
    """
    for part in (path.absolute(), *path.absolute().parents):
        if part.is_symlink() and part.lstat().st_uid not in (os.geteuid(), 0):
            raise PermissionError(errno.EACCES, "a link of another account redirects it")
    if not path.exists() or path.is_file():
        return False
    if path.is_fifo():
        _refuse_planted(path.stat(), path.resolve().parent.stat())
    return True


def _refuse_planted(status: os.stat_result, folder: os.stat_result) -> None:
    """Raise PermissionError for a file of a stranger in a folder where others may create files.

    `status`, `folder`: of the file and its folder. A stranger is neither this user, nor root, nor
    the owner of the folder.
    """
    owner_may = (os.geteuid(), 0)
    is_open_to_others = folder.st_mode & 0o022 or folder.st_uid not in owner_may
    if is_open_to_others and status.st_uid not in (*owner_may, folder.st_uid):
        raise PermissionError(errno.EACCES, "it belongs to another account")


@contextmanager
def _open_target(path: Path) -> Iterator[_Target]:
    """Return a context with the target of an output to the regular or new file at `path`.

    A link is followed once, when the context is entered.
    """
    resolved = path.resolve()
    folder = os.open(resolved.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            status = os.stat(resolved.name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            yield _Target(folder, resolved.name, None)
            return
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _refuse_planted(status, os.fstat(folder))
        yield _Target(folder, resolved.name, status)
    finally:
        os.close(folder)


def _open_existing(target: _Target) -> int:
    """Return the descriptor of the existing file at `target`, opened for writing without O_CREAT.

    With O_CREAT, Linux would refuse files of other accounts in folders such as /tmp.
    """
    return os.open(target.name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=target.folder)


@contextmanager
def _accept_in_place(target: _Target) -> Iterator[None]:
    """Return a context that ignores a failed replacement of a file that can be written in place.

    Its body replaces the file at `target`. An OSError is ignored if the file exists and the error
    prevents only a replacement, as in a folder that accepts no new file.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _IN_PLACE_ERRNOS or target.status is None:
            raise


@contextmanager
def _write_beside(target: _Target, content: bytes) -> Iterator[str]:
    """Return a context with the name of a new file in the folder of `target` that has `content`.

    The file is durable. It has the owner and mode of the file at `target`, if there is one, and is
    private until then. At the end of the context it is removed, unless the body has renamed it.
    """
    random_name = os.urandom(_NAME_BYTES).hex()  # noqa: TID251 (no secret)
    new_name = f".vicinal-{random_name}.new"
    status = target.status
    mode = _PUBLIC_FILE if status is None else PRIVATE_FILE
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(new_name, flags, mode, dir_fd=target.folder), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if status is not None:
                # By the descriptor, as the name may lead elsewhere by now.
                created = os.fstat(file.fileno())
                if (created.st_uid, created.st_gid) != (status.st_uid, status.st_gid):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        yield new_name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new_name, dir_fd=target.folder)
