"""Checks of the sizes that files declare, before memory is allocated or a disk is filled.

A file of a few hundred kilobytes can declare an array of terabytes. Without these checks, a
command would fail with a message that shows the declared shape, or the system would end
the process.
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
from typing import Any, BinaryIO, NamedTuple

from vicinal.errors import TooLittleMemory

_STATM = Path("/proc/self/statm")  # file of the size of this process in memory, in pages, on Linux
_MEMINFO = Path("/proc/meminfo")  # file of the memory of the machine, on Linux
_CGROUP = Path("/proc/self/cgroup")  # file of the control groups of this process
_GROUPS = Path("/sys/fs/cgroup")  # folder of all control groups


class _GroupNames(NamedTuple):
    """Names of the memory controller and its files in one version of Linux's control groups."""

    controller: str  # in /proc/self/cgroup, and of a folder
    limit: str  # file of the limit in bytes
    use: str  # file of the use in bytes
    prefix: str  # of the names in memory.stat that include all groups within a group


_GROUP_VERSIONS = (
    _GroupNames("", "memory.max", "memory.current", ""),
    _GroupNames("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Versions 2 and 1 of Linux's control groups."""

_OFFSET_BITS = 32  # bits of the offset of a text in memory, without its characters

_MAX_DEFLATE_RATIO = 1032
"""Largest ratio of the sizes of a text and of its deflated form, a property of the format."""

_MAX_RATIOS = {
    "UNCOMPRESSED": 1,
    "SNAPPY": 22,  # 64 bytes for 3
    "LZ4": 255,
    "GZIP": _MAX_DEFLATE_RATIO,
    "ZSTD": 1 << 15,  # a block of 128 KiB for 4 bytes
}
"""Largest ratio of the sizes of a text and of its compressed form, by the formats of Parquet."""

_PADDING_BYTES = 100
"""Bytes that pyarrow reads beyond a column's, if an old program is named as the file's writer."""

_CHUNK_BYTES = 1 << 20  # bytes of a file that are read at a time in order to count

_TRIAL_PROGRAM = Path(__file__).with_name("_reading_trial.py")
"""The program of :func:`_read_in_trial`."""


def find_available_bytes() -> int | None:
    """Return the number of bytes of memory that this process can still use; None if unknown.

    The smallest of: free memory of the machine, of the control groups around this process, and of
    its limit on its address space.
    """
    limits = [
        free
        for free in (_find_free_memory(), _find_free_group_memory(), _find_free_address_space())
        if free is not None
    ]
    return min(limits, default=None)


def require_memory(path: str | Path, n_bytes: float) -> None:
    """Raise TooLittleMemory if the content of a file needs more memory than there is.

    `n_bytes`: lower bound on the size of the content in memory, in bytes.
    """
    available = find_available_bytes()
    if available is not None and n_bytes > available:
        raise TooLittleMemory(
            f"{path} declares more data than this machine has free memory for. If it is not "
            "damaged, split it, or use a machine with more memory."
        )


@contextmanager
def open_npz(path: str | Path, file: BinaryIO) -> Iterator[Any]:
    """Yield NumPy's reader of the npz file `file`, after a check of all sizes that it declares.

    `path`: the name of the file for messages. Raises ValueError if the shape of an array and the
    size of its data differ, zipfile.BadZipFile and further errors for other damage, and
    TooLittleMemory. Objects of Python are never read.
    """
    import numpy as np

    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        # First of all, as the header of an array can be as large as the memory.
        require_memory(path, sum(member.file_size for member in members))
        for member in members:
            if member.filename.endswith(".npy"):
                _check_shape(archive, member)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        yield stored


def read_bytes(path: Path) -> bytes:
    """Return the content of a file; raise TooLittleMemory if it does not fit into memory."""
    with path.open("rb") as file:
        require_memory(path, os.fstat(file.fileno()).st_size)
        return file.read()


def require_csv_memory(path: Path, encoding: str | None = None) -> None:
    """Raise TooLittleMemory if a CSV file, compressed if it ends in .gz, needs too much memory.

    In the table every field has an offset of 4 bytes in place of a delimiter and two quotation
    marks, and a letter of UTF-16 one byte in place of two. A compressed file that could need too
    much is decompressed in order to count. `path`: the file. `encoding`: of its text, if known.
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


def require_zip_memory(name: str | Path, file: Path | BinaryIO) -> None:
    """Raise TooLittleMemory if the members of the zip file `file` need too much memory.

    `name`: that of the file, for messages. Raises zipfile.BadZipFile for other files.
    """
    with zipfile.ZipFile(file) as archive:
        require_memory(name, sum(member.file_size for member in archive.infolist()))


def require_sheet_memory(path: Path) -> None:
    """Raise TooLittleMemory if the first sheet of an Excel or OpenDocument file needs too much.

    calamine allocates every cell up to the last one, and ends the process if it cannot. Raises
    ValueError for damage that would end in a traceback.
    """
    _read_in_trial("sheet", path)


def require_parquet_memory(path: str | Path, file: Any) -> None:
    """Raise TooLittleMemory if the columns of a Parquet file need more memory than there is.

    Repeated values take almost no space in the file, so its size does not limit their number. The
    columns of numbers are counted. A text may be stored once for many rows: if each could be as
    long as all texts of its column together, and would not fit, the file is read in a trial. So is
    a file of lists, as nothing limits the values of a row. The sizes that the reader does not use,
    such as the length of all texts, may be forged. `path`, `file`: the file, and pyarrow's reader.
    """
    schema = file.schema_arrow
    column_bits = [bits for field in schema for bits in _list_column_bits(field.type)]
    n_bytes = max_bytes = 0.0
    for group in range(file.num_row_groups):
        row_group = file.metadata.row_group(group)
        for index, bits in enumerate(column_bits):
            chunk = row_group.column(index)
            n_values = max(chunk.num_values, row_group.num_rows)
            if file.schema.column(index).max_repetition_level:
                max_bytes = math.inf
            if chunk.physical_type == "BYTE_ARRAY":
                n_bytes += n_values * max(bits, _OFFSET_BITS) / 8
                # The texts, and the decompressed content of the file, are in memory at once.
                max_bytes += (n_values + 1) * _bound_decompressed_size(chunk)
            else:
                n_bytes += n_values * bits / 8
    require_memory(path, n_bytes)
    available = find_available_bytes()
    if available is not None and n_bytes + max_bytes > available:
        _read_in_trial("parquet", path)


def _bound_decompressed_size(chunk: Any) -> float:
    """Return an upper bound of the bytes of a Parquet column chunk after decompression.

    It is the declared size or, if larger, that of the compressed bytes at the largest ratio of the
    format, because the declaration may be false. `chunk`: pyarrow's metadata of the column chunk.
    """
    n_compressed = max(chunk.total_compressed_size, 0) + _PADDING_BYTES
    ratio = _MAX_RATIOS.get(chunk.compression, math.inf)
    return float(max(chunk.total_uncompressed_size, n_compressed * ratio))


def iterate_extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield start and end, in bytes, of each stored part of an open file.

    `descriptor`: of the file. `start`, `end`: the range of bytes in which the parts are. Holes of a
    sparse file hold nothing to overwrite, and may be larger than the disk. Where the file system
    does not know its holes, the whole range is one part.
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


def iterate_chunks(descriptor: int, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield offset and content of consecutive chunks of an open file, without its holes.

    `descriptor`: of the file. `max_bytes`: largest size of a chunk.
    """
    for start, end in iterate_extents(descriptor, 0, os.fstat(descriptor).st_size):
        offset = start
        while offset < end:
            chunk = os.pread(descriptor, min(max_bytes, end - offset), offset)
            if not chunk:  # the file has become shorter
                return
            yield offset, chunk
            offset += len(chunk)  # a read may return less than requested


def read_chunks(source: Path | int, max_bytes: int) -> Iterator[bytes]:
    """Yield the content of a file in chunks of at most `max_bytes`, without the zeros of its holes.

    One zero stands for each hole, so that the bytes before and after it are not adjacent.
    `source`: path of the file, or a descriptor, which stays open.
    """
    with open(source, "rb", buffering=0, closefd=isinstance(source, Path)) as file:
        position = 0
        for offset, chunk in iterate_chunks(file.fileno(), max_bytes):
            if offset > position:
                yield b"\0"
            yield chunk
            position = offset + len(chunk)


def _check_shape(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Raise ValueError if the shape of an array in an npz file does not fit the size of its data.

    `archive`: the npz file. `member`: the array's entry in it.
    """
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


def _list_column_bits(arrow_type: Any) -> list[int]:
    """Return the bits that a value takes in memory, for each Parquet column of an Arrow type.

    A nested type has a column for each type within it. A type without a fixed size has 0 bits.
    """
    if hasattr(arrow_type, "storage_type"):  # a type of an extension
        return _list_column_bits(arrow_type.storage_type)
    if arrow_type.num_fields:
        fields = [arrow_type.field(index) for index in range(arrow_type.num_fields)]
        return [bits for field in fields for bits in _list_column_bits(field.type)]
    try:
        return [arrow_type.bit_width]
    except ValueError:
        return [0]


def _read_in_trial(kind: str, path: str | Path) -> None:
    """Check, by reading a file in another process, that its content fits into available memory.

    `kind`: "sheet" or "parquet". Raises TooLittleMemory if the content does not fit, and ValueError
    for damage with which the reader would end in a traceback; other damage is left to that reader.
    Where no such process can run, the file is not checked. Like the reading itself, a trial has no
    limit on its time; an interruption ends it.
    """
    available = find_available_bytes()
    executable = sys.executable or ""
    # A frozen program or one with a Python inside would start itself again.
    if available is None or not _STATM.exists() or "python" not in Path(executable).name:
        return
    # -P: no module in the folder of the program hides one of Python.
    command = [executable, "-P", str(_TRIAL_PROGRAM), kind, str(Path(path).resolve())]
    try:
        trial = subprocess.run(
            [*command, str(available)], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError:  # no further process is allowed, for example
        return
    result = trial.stdout.split()
    if trial.returncode < 0 or result == [b"memory"]:
        require_memory(path, math.inf)
    if result == [b"panic"]:
        raise ValueError
    if result[:1] == [b"bytes"]:
        require_memory(path, int(result[1]))


def _find_free_memory() -> int | None:
    """Return the bytes of the machine's memory that are free or can be freed; None if unknown."""
    lines = _read_lines(_MEMINFO)
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    available = fields.get("MemAvailable")
    return None if available is None else int(available.split()[0]) * 1024


def _find_free_group_memory() -> int | None:
    """Return the bytes that this process may use by its control groups; None without a limit.

    Linux limits the memory of each group of processes; the smallest rest of all groups counts.
    """
    free_bytes = []
    for line in _read_lines(_CGROUP):
        _, controllers, group = line.split(":", 2)
        for names in _GROUP_VERSIONS:
            if names.controller in controllers.split(","):
                folder = _GROUPS / names.controller / group.strip("/")
                for parent in (folder, *folder.parents):
                    free_bytes += _count_free_group_bytes(parent, names)
    return min(free_bytes, default=None)


def _count_free_group_bytes(folder: Path, names: _GroupNames) -> list[int]:
    """Return the free bytes of one control group, in a list, which is empty without a limit.

    `folder`: the group's folder. `names`: file names in this version of control groups. The cache
    of files counts as free, as the kernel drops it if memory is needed.
    """
    limit = _read_lines(folder / names.limit)
    used = _read_lines(folder / names.use)
    if not limit or not used or not limit[0].isdigit():
        return []
    statistics = dict(line.split() for line in _read_lines(folder / "memory.stat"))
    cache_names = (f"{names.prefix}active_file", f"{names.prefix}inactive_file")
    n_cached = sum(int(statistics.get(name, 0)) for name in cache_names)
    return [max(int(limit[0]) - int(used[0]) + n_cached, 0)]


def _find_free_address_space() -> int | None:
    """Return the bytes that this process may add to its address space; None without a limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = _read_lines(_STATM)
    if limit == resource.RLIM_INFINITY or not sizes:
        return None
    return max(limit - int(sizes[0].split()[0]) * resource.getpagesize(), 0)


def _read_lines(path: Path) -> list[str]:
    """Return the lines of a file of the system; none if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
