"""Checks of the sizes that files declare, before memory is allocated or a disk is filled.

A file of a few hundred kilobytes can declare an array of terabytes. Without these checks, a
command would fail with a message that shows the declared shape, or the system would end it.
"""

import errno
import gzip
import math
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from vicinal.errors import InvalidInput

_PAGE_BYTES = 4096
"""Size of a page of memory in /proc/self/statm, on the supported Linux systems."""

_STATM = Path("/proc/self/statm")
"""File of the size of this process in memory, in pages, on Linux."""

_PARQUET_BYTES = {"BOOLEAN": 1 / 8, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes of a value of each physical type of Parquet in memory; other types have at least 4."""

_MIN_TEXT_BYTES = 4
"""Bytes of the offset of a text of a Parquet column in memory, without its characters."""

_MAX_DEFLATE_RATIO = 1032
"""Largest ratio of the sizes of a text and of its deflated form, a property of the format."""

_CELL_BYTES = 32
"""Bytes of a cell of a sheet, empty cells included: 24 in calamine, 8 in a list of Python."""

_CHUNK_BYTES = 1 << 20
"""Bytes of a file that are read at a time in order to count."""

_MAX_BATCH_BYTES = 1 << 27
"""Largest size in memory of texts of a Parquet file that are read at a time."""

_MAX_BATCH_ROWS = 1 << 16
"""Rows of a Parquet file that are read at a time, by default as in pyarrow."""

_TRIAL = """\
import resource, sys
from python_calamine import CalamineWorkbook
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
limit = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
sheet = CalamineWorkbook.from_path(sys.argv[1]).get_sheet_by_index(0)
print(sheet.height * sheet.width)
"""
"""Program that prints the number of cells of the first sheet of the file `argv[1]`, within
`argv[2]` bytes of memory."""


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


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raise InvalidInput if it does not fit into memory."""
    with path.open("rb") as file:
        require_memory(path, os.fstat(file.fileno()).st_size)
        return file.read()


def require_csv_memory(path: Path, encoding: str | None = None) -> None:
    """Raise InvalidInput if a CSV file, compressed if it ends in .gz, needs too much memory.

    In the table every field has an offset of 4 bytes in place of a delimiter and two quotation
    marks, and a letter of UTF-16 one byte in place of two. A compressed file that could need too
    much is decompressed in order to count. `encoding`: None for a text that is read as a whole.
    """
    divisor = 2 if encoding == "utf-16" else 1
    n_bytes = path.stat().st_size
    available = find_available_bytes()
    if path.suffix.lower() == ".gz" and available is not None:
        if n_bytes * _MAX_DEFLATE_RATIO <= available * divisor:
            return
        n_bytes = 0
        # Damage is left to the caller's reader.
        with suppress(OSError, EOFError, zlib.error), gzip.open(path) as text:
            while n_bytes <= available * divisor and (chunk := text.read(_CHUNK_BYTES)):
                n_bytes += len(chunk)
    require_memory(path, n_bytes / divisor)


def require_zip_memory(path: str | Path, file: Path | BinaryIO) -> None:
    """Raise InvalidInput if the members of the zip file `file` need too much memory.

    `path`: the name of the file for messages. Raises zipfile.BadZipFile for other files.
    """
    with zipfile.ZipFile(file) as archive:
        require_memory(path, sum(member.file_size for member in archive.infolist()))


def require_sheet_memory(path: Path) -> None:
    """Raise InvalidInput if the first sheet of an Excel or OpenDocument file needs too much memory.

    calamine allocates every cell up to the last one, and ends the process if it cannot. The file is
    therefore read first in a process of its own, which prints the number of cells. Damage, which
    calamine reports, is left to the caller.
    """
    available = find_available_bytes()
    if available is None or not sys.executable or not _STATM.exists():
        return
    command = [sys.executable, "-P", "-c", _TRIAL, str(path.resolve()), str(available)]
    trial = subprocess.run(command, capture_output=True, check=False)
    if trial.returncode < 0:  # ended by a signal, as Rust does without memory
        require_memory(path, math.inf)
    elif trial.returncode == 0:
        require_memory(path, int(trial.stdout) * _CELL_BYTES)


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
    n_bytes = metadata.num_rows * row_bytes
    require_memory(path, n_bytes)
    _require_text_memory(path, metadata, n_bytes)


def iterate_extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each stored part of an open file within the bytes `start` to `end`.

    Holes of a sparse file hold nothing to overwrite, and may be larger than the disk. Where the
    file system does not know its holes, the whole range is one part.
    """
    position = start
    while position < end:
        try:
            position = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole follows
                return
            raise
        hole = min(os.lseek(descriptor, position, os.SEEK_HOLE), end)
        if position < hole:
            yield position, hole
        position = hole


def read_chunks(path: Path, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of a file in chunks of at most `max_bytes`, without the zeros of holes.

    One zero stands for each hole, so that the bytes before and after it are not adjacent.
    """
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        position = 0
        for start, end in iterate_extents(descriptor, 0, os.fstat(descriptor).st_size):
            if start > position:
                yield b"\0"
            for offset in range(start, end, max_bytes):
                if chunk := os.pread(descriptor, min(max_bytes, end - offset), offset):
                    yield chunk
            position = end


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


def _require_text_memory(path: str | Path, metadata: Any, n_bytes: float) -> None:
    """Raise InvalidInput if `n_bytes` and the texts of a Parquet file need too much memory.

    A text may be stored once and have many rows, so the texts are read as indices into a dictionary
    and never copied. Texts that are stored as differences cannot be read so, but are read few at a
    time: none is longer than the data of its column. `metadata`: pyarrow's metadata of the file.
    """
    from pyarrow import parquet

    chunks = [
        metadata.row_group(group).column(index)
        for group in range(metadata.num_row_groups)
        for index in range(metadata.num_columns)
        if metadata.schema.column(index).physical_type == "BYTE_ARRAY"
    ]
    deltas = [chunk for chunk in chunks if any("DELTA" in name for name in chunk.encodings)]
    columns = {chunk.path_in_schema for chunk in chunks}
    dictionaries = columns - {chunk.path_in_schema for chunk in deltas}
    max_text_bytes = max((chunk.total_uncompressed_size for chunk in deltas), default=1)
    batch_size = min(max(_MAX_BATCH_BYTES // max(max_text_bytes, 1), 1), _MAX_BATCH_ROWS)
    available = find_available_bytes()
    if not columns or available is None:
        return
    with parquet.ParquetFile(path, read_dictionary=sorted(dictionaries)) as file:
        for batch in file.iter_batches(batch_size, columns=sorted(columns)):
            n_bytes += sum(map(_count_text_bytes, batch.columns))
            if n_bytes > available:
                require_memory(path, math.inf)


def _count_text_bytes(array: Any) -> int:
    """Return the bytes that all texts in an array of pyarrow need, each where it is repeated."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        lengths = pc.binary_length(array.dictionary).cast(pa.int64())
        return pc.sum(lengths.take(array.indices)).as_py() or 0
    if pa.types.is_struct(array.type):
        return sum(map(_count_text_bytes, array.flatten()))
    if pa.types.is_nested(array.type):
        return _count_text_bytes(array.values)
    return int(array.nbytes)


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
    sizes = _read_lines(_STATM)
    if limit == resource.RLIM_INFINITY or not sizes:
        return None
    return max(limit - int(sizes[0].split()[0]) * _PAGE_BYTES, 0)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
