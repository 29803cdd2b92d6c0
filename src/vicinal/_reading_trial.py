"""Program that reads a file within limited memory, for `vicinal.declared_sizes`.

Its arguments are "sheet" or "parquet", the path of the file, and the bytes that its content may
occupy. It prints "bytes" and the number of bytes that the content needs; or "memory" if it does not
fit; or "panic" if the file is damaged so that its reader would end with a traceback. Without
memory, a reader may also end the process by a signal. Other errors are left to the reader that
follows. The program imports nothing from vicinal, so that it starts quickly.
"""

import ctypes
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
"""Options of Linux's prctl, from linux/prctl.h."""

_CELL_BYTES = 32
"""Bytes of a cell of a sheet, empty cells included: 24 in calamine, 8 in a list of Python."""


def main() -> None:
    """Read the file that the arguments name, and print the result."""
    kind, path, max_bytes = sys.argv[1:]
    libc = ctypes.CDLL(None)
    # The end of the process that started this one also ends this one.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # No core file may hold private cells. RLIMIT_CORE would not restrain a crash reporter.
    libc.prctl(_PR_SET_DUMPABLE, 0)
    create_counter = create_sheet_counter if kind == "sheet" else create_parquet_counter
    count_bytes = create_counter(path)
    n_pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = n_pages * resource.getpagesize() + int(max_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        result = f"bytes {count_bytes()}"
    except MemoryError:
        result = "memory"
    except Exception:
        raise
    except BaseException as error:  # noqa: BLE001 (a panic of calamine)
        # This panic is about a sheet with more cells than there are addresses.
        result = "memory" if "capacity overflow" in str(error) else "panic"
    sys.stdout.write(result)


def create_sheet_counter(path: str) -> Callable[[], int]:
    """Return a function that reads the first sheet and returns the number of bytes it occupies.

    The reader is imported here, before memory is limited.
    """
    from python_calamine import CalamineWorkbook

    def count_bytes() -> int:
        """Return the number of bytes that the cells of the first sheet occupy."""
        sheet = CalamineWorkbook.from_path(path).get_sheet_by_index(0)
        return sheet.height * sheet.width * _CELL_BYTES

    return count_bytes


def create_parquet_counter(path: str) -> Callable[[], int]:
    """Return a function that reads a Parquet file and returns the number of bytes of its table.

    The reader is imported here, before memory is limited. Categories are counted as their texts.
    """
    import pyarrow as pa
    from pyarrow import parquet

    # The threads of Arrow reserve more addresses than they use. Those that cannot be avoided start
    # when the file is opened, before memory is limited.
    file = parquet.ParquetFile(path, pre_buffer=False)

    def count_bytes() -> int:
        """Return the number of bytes that the file's columns occupy as a table."""
        columns = [
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
            for column in file.read(use_threads=False).columns
        ]
        return sum(column.nbytes for column in columns)

    return count_bytes


if __name__ == "__main__":
    main()
