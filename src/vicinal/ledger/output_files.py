"""Output files, whose paths users choose: checked before the work, and replaced when complete.

In arguments and attributes, `folder` is the descriptor of an open folder.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from vicinal.errors import InvalidInput, OutputFailed
from vicinal.ledger.files import PRIVATE_FILE, ROOT_USER, is_writable

_PROBE_BYTES = 1 << 16
"""Free bytes that an output needs before anything is charged: more than most commands write."""
_FULL_DEVICE = Path("/dev/full")
_PUBLIC_FILE = 0o666
"""Mode of a new output; the system removes the permissions of the user's umask from it."""
_PERMISSIONS = 0o777
"""Bits of a mode that an output keeps: to run as its owner (set-user-id) was granted to the earlier
content."""
_NAME_BYTES = 8
"""Random bytes in the name of a temporary file; with so many, no two names ever agree."""

_IN_PLACE_ERRNOS = (errno.EACCES, errno.EBUSY, errno.EPERM, errno.EROFS)
"""Error numbers of replacing a file that may nevertheless be writable: it is mounted into a
container, or it or its folder belongs to another account."""


_MAX_LINKS = 40
"""Number of links on the way to an output, as on Linux; with more, they are taken for a loop."""


class _Target(NamedTuple):
    """Where an output is written, after all links: a name in a folder that is held open.

    - `folder`: descriptor of the folder, which may serve for nothing but names in it.
    - `name`: name in the folder, no link unless `is_open_file`.
    - `status`: of the existing file; None if there is none.
    - `is_open_file`: whether the name is a link of the system to a file without a path that a
      process has open, as ``/dev/stdout`` is for a pipe.
    """

    folder: int
    name: str
    status: os.stat_result | None
    is_open_file: bool = False

    @property
    def is_replaceable(self) -> bool:
        """Whether the output is a new file, or replaces a regular one."""
        is_regular = self.status is None or stat.S_ISREG(self.status.st_mode)
        return is_regular and not self.is_open_file


def check_output(path: Path) -> None:
    """Raise InvalidInput if `path` cannot be written now; nothing is changed.

    Of a pipe only the permission is checked: its reader would take a trial for the whole output.
    """
    try:
        with _open_target(path) as target:
            if target.status is not None and stat.S_ISFIFO(target.status.st_mode):
                if not is_writable(target.name, folder=target.folder):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
                return
            if target.status is not None:
                descriptor = _open_existing(target)
                try:
                    check_free_space(descriptor)
                finally:
                    os.close(descriptor)
            if target.is_replaceable:
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
    Links of other accounts are refused, and so are files and folders that other accounts made in
    folders open to them.
    """
    try:
        with _open_target(path) as target:
            if target.is_replaceable:
                with _accept_in_place(target), _write_beside(target, content) as new_name:
                    folder = target.folder
                    os.replace(new_name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
                    _sync_folder(folder)
                    return
            with os.fdopen(_open_existing(target), "wb") as file:
                is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
                if is_regular:
                    file.truncate()
                file.write(content)
                file.flush()
                if is_regular:
                    os.fsync(file.fileno())
    except OSError as error:
        raise OutputFailed(f"{path} cannot be written: {error.strerror}.") from None


def _refuse_planted(status: os.stat_result, folder_status: os.stat_result) -> None:
    """Raise PermissionError for an entry that another account may have made in a shared folder.

    `status`, `folder_status`: of the entry, and of the folder that it is in. Other accounts are all
    except this user's and root's. There are two rules:

    - In a shared folder, the entry must belong to this user, to root or to the folder's owner. A
      folder is shared if all accounts may write to it. For an entry that is no folder, it is also
      shared if a group may write to it, or if it belongs to another account. Folders may belong to
      any member of a group, because its members work in folders of each other.
    - In a folder that all accounts may write to, or that belongs to another account, a regular file
      must have one name only: some systems let every account give a new name to any file.
    """
    trusted_users = (os.geteuid(), ROOT_USER)
    is_open_to_all = bool(folder_status.st_mode & stat.S_IWOTH)
    is_foreign = folder_status.st_uid not in trusted_users
    if stat.S_ISDIR(status.st_mode):
        kind = "a folder on the way"
        is_shared = is_open_to_all
    else:
        kind = "it"
        is_shared = is_open_to_all or is_foreign or bool(folder_status.st_mode & stat.S_IWGRP)
    if is_shared and status.st_uid not in (*trusted_users, folder_status.st_uid):
        raise PermissionError(errno.EACCES, f"{kind} belongs to another account")
    if (is_open_to_all or is_foreign) and stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise PermissionError(errno.EACCES, "it has another name, perhaps by another account")


@contextmanager
def _open_target(path: Path) -> Iterator[_Target]:
    """Return a context with the target of an output to `path`; its folder is open in the context.

    Raises PermissionError, when the context is entered, if another account could redirect the
    output.
    """
    walk = _Walk(path)
    try:
        yield walk.find_target()
    finally:
        walk.close()


class _Walk:
    """A walk from the root along a path and the links on it.

    Every name is looked up in an open folder, so nothing that was checked can be exchanged.
    `path`: path of an output, absolute or relative to the current folder.
    """

    def __init__(self, path: Path) -> None:
        root, *names = path.absolute().parts
        # The next name is the last one.
        self._remaining_names = names[::-1]
        self._n_links = 0
        # Of the file that a link of the system led to: by its path, another account may move it.
        self._open_file: os.stat_result | None = None
        # Descriptors of the root, and of the folders below it that lead to the current one.
        self._folders = [_open_folder(root)]

    def close(self) -> None:
        """Close all folders."""
        while self._folders:
            os.close(self._folders.pop())

    def find_target(self) -> _Target:
        """Return the target at the end of the path. Its folder is open until :meth:`close`."""
        while self._remaining_names:
            name = self._remaining_names.pop()
            folder = self._folders[-1]
            if name == "..":
                self._leave_folder()
                continue
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                if self._remaining_names:
                    raise
                self._refuse_moved(None)
                return _Target(folder, name, None)
            if stat.S_ISLNK(status.st_mode):
                target_path = _read_link(name, folder, status)
                open_file = None if self._remaining_names else _find_open_file(name, folder, status)
                if open_file is not None:
                    if not (stat.S_ISREG(open_file.st_mode) and open_file.st_nlink):
                        return _Target(folder, name, open_file, is_open_file=True)
                    self._open_file = open_file
                self._follow_link(target_path)
            elif self._remaining_names:
                self._folders.append(_open_folder(name, folder))
                _refuse_planted(os.fstat(self._folders[-1]), os.fstat(folder))
            else:
                _refuse_planted(status, os.fstat(folder))
                self._refuse_moved(status)
                return _Target(folder, name, status)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _refuse_moved(self, status: os.stat_result | None) -> None:
        """Raise PermissionError if the walk does not end at the open file that it led to.

        `status`: of the file at its end; None if there is none.
        """
        if self._open_file is None:
            return
        if status is None or not os.path.samestat(status, self._open_file):
            raise PermissionError(errno.EACCES, "the open file was moved or removed")

    def _leave_folder(self) -> None:
        """Return to the folder from which the current one was entered; the root has none.

        The system's ``..`` may be another folder, if the current one is moved meanwhile.
        """
        if len(self._folders) > 1:
            os.close(self._folders.pop())

    def _follow_link(self, target_path: str) -> None:
        """Continue with the path in a link of the current folder. Raises OSError for a loop."""
        self._n_links += 1
        if self._n_links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target_path.startswith("/"):
            while len(self._folders) > 1:
                self._leave_folder()
        names = [name for name in target_path.split("/") if name not in ("", ".")]
        self._remaining_names += names[::-1]


def _open_folder(name: str, parent: int | None = None) -> int:
    """Return a descriptor of the folder `name`, no link, for the names in it.

    `parent`: descriptor of the folder around it; None for the root.
    """
    # With O_PATH (Linux), a folder that may be searched, but not read, can be opened.
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | getattr(os, "O_PATH", os.O_RDONLY)
    return os.open(name, flags, dir_fd=parent)


def _read_link(name: str, folder: int, status: os.stat_result) -> str:
    """Return the path in the link `name` of an open folder.

    `status`: of the link, at an earlier time. Raises PermissionError if the link belongs neither to
    this user nor to root.
    """
    if hasattr(os, "O_PATH"):
        # One descriptor for owner and path: the link cannot be exchanged between the two.
        link = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
        try:
            status = os.fstat(link)
            target_path = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
    else:
        target_path = os.readlink(name, dir_fd=folder)
        next_status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (next_status.st_ino, next_status.st_ctime_ns) != (status.st_ino, status.st_ctime_ns):
            raise PermissionError(errno.EACCES, "a link that redirects it was exchanged")
    if status.st_uid not in (os.geteuid(), ROOT_USER):
        raise PermissionError(errno.EACCES, "a link of another account redirects it")
    return target_path


def _find_open_file(name: str, folder: int, status: os.stat_result) -> os.stat_result | None:
    """Return the status of the file to which a link of the system leads; None for other links.

    On Linux, the links in ``/proc/self/fd`` lead to files that a process has open, and
    ``/dev/stdout`` leads to such a link. Its text is a path only of a regular file with a name.

    `name`: name of the link in the open `folder`. `status`: of the link.
    """
    try:
        is_link_of_system = status.st_dev == os.lstat("/proc/self").st_dev
    except FileNotFoundError:
        return None
    return os.stat(name, dir_fd=folder) if is_link_of_system else None


def _open_existing(target: _Target) -> int:
    """Return the descriptor of the existing file at `target`, opened for writing without O_CREAT.

    With O_CREAT, Linux would refuse files of other accounts in folders such as /tmp. Raises
    PermissionError if the name leads to another file by now.
    """
    flags = os.O_WRONLY if target.is_open_file else os.O_WRONLY | os.O_NOFOLLOW
    descriptor = os.open(target.name, flags, dir_fd=target.folder)
    try:
        status = os.fstat(descriptor)
        _refuse_planted(status, os.fstat(target.folder))
        if target.status is None or not os.path.samestat(status, target.status):
            raise PermissionError(errno.EACCES, "it was exchanged for another file")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_folder(folder: int) -> None:
    """Make the renaming of a file in an open folder durable."""
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    except PermissionError:
        os.sync()  # a folder that may be written, but not read
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
                os.fchmod(file.fileno(), status.st_mode & _PERMISSIONS)
        yield new_name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(new_name, dir_fd=target.folder)
