"""Program that reads a file within limited memory, for `vicinal.declared_sizes`.

Its arguments are "sheet" or "parquet", the path of the file, and the bytes that its content may
occupy. It prints "bytes" and the number of bytes that the content needs; or "memory" if it does not
fit; or "damaged". Without memory, a reader may also end the process by a signal. It imports nothing
from vicinal, so that it starts quickly.
"""

import ctypes
import importlib
import resource
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
"""Options of Linux's prctl, from linux/prctl.h."""

_CELL_BYTES = 32
"""Bytes of a cell of a sheet, empty cells included: 24 in calamine, 8 in a list of Python."""

_READERS = {"sheet": "python_calamine", "parquet": "pyarrow.parquet"}
"""Modules that are imported before memory is limited, by kind of file."""


def main() -> None:
    """Read the file that the arguments name, and print the result."""
    kind, path, max_bytes = sys.argv[1:]
    libc = ctypes.CDLL(None)
    # The end of the process that started this one also ends this one.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # No core file may hold private cells: neither the kernel nor a crash reporter writes one.
    libc.prctl(_PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    importlib.import_module(_READERS[kind])
    n_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = n_pages * resource.getpagesize() + int(max_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        n_bytes = count_sheet_bytes(path) if kind == "sheet" else count_parquet_bytes(path)
        result = f"bytes {n_bytes}"
    except MemoryError:
        result = "memory"
    # A panic of calamine is no Exception. It overflows if the cells exceed any address space.
    except BaseException as error:  # noqa: BLE001 (a damaged file can raise any error)
        result = "memory" if "capacity overflow" in str(error) else "damaged"
    sys.stdout.write(result)


def count_sheet_bytes(path: str) -> int:
    """Return the bytes in memory of the first sheet of an Excel or OpenDocument file."""
    from python_calamine import CalamineWorkbook

    sheet = CalamineWorkbook.from_path(path).get_sheet_by_index(0)
    return sheet.height * sheet.width * _CELL_BYTES


def count_parquet_bytes(path: str) -> int:
    """Return the bytes in memory of the table of a Parquet file, categories as their texts."""
    import pyarrow as pa
    from pyarrow import parquet

    # Other allocators of Arrow, and threads, reserve more addresses than they use.
    pa.set_memory_pool(pa.system_memory_pool())
    with parquet.ParquetFile(path) as file:
        table = file.read(use_threads=False)
    n_bytes = table.nbytes
    for column in table.columns:
        if pa.types.is_dictionary(column.type):
            n_bytes += column.cast(column.type.value_type).nbytes
    return int(n_bytes)


if __name__ == "__main__":
    main()
