"""Checks of the sizes that files declare, before memory is allocated or a disk is filled.

A file of a few hundred kilobytes can declare an array of terabytes. Without these checks, a
command would fail with a message that shows the declared shape, or the system would end it.
"""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from vicinal.errors import InvalidInput

_PAGE_BYTES = 4096
"""Size of a page of memory in /proc/self/statm, on the supported Linux systems."""

_PARQUET_BYTES = {"BOOLEAN": 1 / 8, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes of a value of each physical type of Parquet in memory; other types have at least 4."""

_MIN_TEXT_BYTES = 4
"""Bytes of the offset of a text of a Parquet column in memory, without its characters."""


def find_available_bytes() -> int | None:
    """Return the number of bytes of memory that this process can still use; None if unknown.

    The smallest of: free memory of the machine, of the control group, and of the process's limit
    on its address space.
    """
    limits = [
        free
        for free in (_find_free_memory(), _find_free_group_memory(), _find_free_address_space())
        if free is not None
    ]
    return min(limits, default=None)


def require_memory(path: str | Path, n_bytes: float) -> None:
    """Raise InvalidInput if the content of a file needs more memory than there is.

    `n_bytes`: lower bound on the size of the content in memory, in bytes.
    """
    available = find_available_bytes()
    if available is not None and n_bytes > available:
        raise InvalidInput(
            f"{path} declares more data than this machine has free memory for. If it is not "
            "damaged, split it, or use a machine with more memory."
        )


@contextmanager
def open_npz(path: str | Path, file: BinaryIO) -> Iterator[Any]:
    """Yield NumPy's reader of the npz file `file`, after a check of all sizes that it declares.

    `path`: the name of the file for messages. Raises ValueError if the shape of an array and the
    size of its data differ, zipfile.BadZipFile and further errors for other damage, and
    InvalidInput if there is too little memory. Objects of Python are never read.
    """
    import numpy as np

    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for member in members:
            if member.filename.endswith(".npy"):
                _check_shape(archive, member)
    require_memory(path, sum(member.file_size for member in members))
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        yield stored


def require_zip_memory(path: str | Path) -> None:
    """Raise InvalidInput if the members of a zip file (such as .xlsx) need too much memory.

    Raises zipfile.BadZipFile for a file that is no zip file.
    """
    with zipfile.ZipFile(path) as archive:
        require_memory(path, sum(member.file_size for member in archive.infolist()))


def require_parquet_memory(path: str | Path, metadata: Any) -> None:
    """Raise InvalidInput if the columns of a Parquet file need more memory than there is.

    Repeated values take almost no space in the file, so its size does not limit the number of rows.
    `metadata`: pyarrow's metadata of the file.
    """
    columns = [metadata.schema.column(index) for index in range(metadata.num_columns)]
    row_bytes = sum(
        _PARQUET_BYTES.get(column.physical_type, max(column.length, _MIN_TEXT_BYTES))
        for column in columns
    )
    require_memory(path, metadata.num_rows * row_bytes)


def _check_shape(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError if an array's shape and the size of its data in an archive differ."""
    import numpy as np

    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        else:  # for structured types with field names beyond ASCII, which vicinal never writes
            raise ValueError
        n_data_bytes = member.file_size - file.tell()
    if not dtype.hasobject and math.prod(shape) * dtype.itemsize != n_data_bytes:
        raise ValueError


def _find_free_memory() -> int | None:
    """Return the bytes of memory that are free or can be freed; None if unknown."""
    lines = _read_lines(Path("/proc/meminfo"))
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    available = fields.get("MemAvailable")
    return None if available is None else int(available.split()[0]) * 1024


def _find_free_group_memory() -> int | None:
    """Return the bytes that the control group of a container leaves; None without a limit."""
    group = Path("/sys/fs/cgroup")
    limit = _read_lines(group / "memory.max")
    used = _read_lines(group / "memory.current")
    if not (limit and used and limit[0].isdigit() and used[0].isdigit()):
        return None
    return max(int(limit[0]) - int(used[0]), 0)


def _find_free_address_space() -> int | None:
    """Return the bytes that the limit on the address space leaves; None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = _read_lines(Path("/proc/self/statm"))
    if limit == resource.RLIM_INFINITY or not sizes:
        return None
    return max(limit - int(sizes[0].split()[0]) * _PAGE_BYTES, 0)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
