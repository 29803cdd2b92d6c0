"""Output files, whose paths users choose: checked before the work, and replaced when complete."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vicinal.errors import InvalidInput, OutputFailed
from vicinal.ledger.files import PRIVATE_FILE, is_writable, sync_folder

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


def check_output(path: Path) -> None:
    """Raise InvalidInput if `path` cannot be written now; nothing is changed.

    Of a pipe only the permission is checked: its reader would take a trial for the whole output.
    """
    try:
        exists = path.exists()
        if path.is_fifo():
            if not is_writable(path):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        if exists:
            descriptor = os.open(path, os.O_WRONLY)
            try:
                check_free_space(descriptor)
            finally:
                os.close(descriptor)
        if path.is_file() or not exists:
            with _accept_in_place(path), _write_beside(path, bytes(_PROBE_BYTES)):
                pass
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}.") from None


def check_free_space(descriptor: int) -> None:
    """Raise OSError if an open file is the full device, or a regular file on a full disk."""
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
        if path.is_file() or not path.exists():
            with _accept_in_place(path), _write_beside(path, content) as new_path:
                new_path.replace(path.resolve())
                sync_folder(new_path.parent)
                return
        with open(path, "wb", opener=_open_existing) as file:
            file.write(content)
            file.flush()
            if path.is_file():
                os.fsync(file.fileno())
    except OSError as error:
        raise OutputFailed(f"{path} cannot be written: {error.strerror}.") from None


def _open_existing(path: str, flags: int) -> int:
    """Return the descriptor of an existing file, opened with `flags` without O_CREAT.

    With O_CREAT, Linux would refuse files of other accounts in folders such as /tmp.
    """
    return os.open(path, flags & ~os.O_CREAT)


@contextmanager
def _accept_in_place(path: Path) -> Iterator[None]:
    """Suppress an error of replacing the existing file `path` that allows to write it in place."""
    try:
        yield
    except OSError as error:
        if error.errno not in _IN_PLACE_ERRNOS or not path.exists():
            raise


@contextmanager
def _write_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Write `content` durably to a new file in the folder of `path`, and yield the new file's path.

    It has the owner and mode of an existing file `path`, and is private until then. It is removed
    afterwards unless the caller has renamed it.
    """
    target = path.resolve()
    random_name = os.urandom(_NAME_BYTES).hex()  # noqa: TID251 (no secret)
    new_path = target.with_name(f".vicinal-{random_name}.new")
    status = target.stat() if target.exists() else None
    mode = _PUBLIC_FILE if status is None else PRIVATE_FILE
    try:
        with open(new_path, "xb", opener=partial(os.open, mode=mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if status is not None:
            created = new_path.stat()
            if (created.st_uid, created.st_gid) != (status.st_uid, status.st_gid):
                os.chown(new_path, status.st_uid, status.st_gid)
            new_path.chmod(stat.S_IMODE(status.st_mode))
        yield new_path
    finally:
        new_path.unlink(missing_ok=True)
