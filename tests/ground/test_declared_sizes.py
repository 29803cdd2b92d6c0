"""Files that declare more than they hold are refused before memory or a disk is filled."""

import gzip
import io
import os
import shutil
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import store_tools as tools
from vicinal import _reading_trial, declared_sizes
from vicinal.datasets import tables
from vicinal.datasets.dataset import load_images, load_npz
from vicinal.datasets.id_lists import read_ids
from vicinal.datasets.tables import read_table
from vicinal.distributed.changes import ClusterChange, wipe_file
from vicinal.errors import InvalidInput, StorageFailed, TooLittleMemory
from vicinal.features import PublicMap
from vicinal.features.csv_form import CsvForm
from vicinal.labelling import load_answers
from vicinal.labelling.journal import FileJournal
from vicinal.ledger.sealed_files import read_arrays, seal_archive
from vicinal.store import Store
from vicinal.store.folder import copy_file
from vicinal.store.receipts import SigningKey
from vicinal.store.record_files import RecordFile

ROWS = 1 << 36
"""A number of rows that no machine of today holds, and that no message may show."""


def write_npz(path, shape, content=b""):
    """Write an npz file whose array `x` declares a shape and has other content."""
    header = io.BytesIO()
    declared = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, declared)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + content)
        archive.writestr("mean.npy", header.getvalue() + content)


@pytest.mark.parametrize("load", [load_npz, PublicMap.load])
@pytest.mark.parametrize("shape", [(ROWS, 8), (3, 8)])
def test_an_array_that_declares_more_than_it_has_is_refused(tmp_path, load, shape):
    write_npz(tmp_path / "a.npz", shape, bytes(64))
    with pytest.raises(InvalidInput) as refused:
        load(tmp_path / "a.npz")
    assert str(ROWS) not in str(refused.value)


def test_a_parquet_file_of_endless_rows_is_refused(tmp_path):
    """In a process of its own with 2 GiB of memory, which 2^22 rows of 1 KiB exceed."""
    batch = pa.table({"x": pa.nulls(1 << 16, pa.binary(1 << 10))})
    with parquet.ParquetWriter(tmp_path / "a.parquet", batch.schema) as writer:
        for _ in range(1 << 6):
            writer.write_table(batch)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        "from vicinal.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, "schema", str(tmp_path / "a.parquet")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert "declares more data than this machine has free memory" in process.stderr
    assert str(1 << 22) not in process.stderr
    assert len(process.stderr.splitlines()) == 1


MEMORY_BYTES = 1 << 22
"""Free memory in tests that simulate a small machine."""


def write_gz(path, n_bytes):
    """Write a compressed CSV file of `n_bytes`, which takes a thousandth of them."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n" + b"1,2\n" * (n_bytes // 4 - 1))


def write_texts(path, n_bytes, encoding=None):
    """Write a Parquet file of 64 rows with the same text, `n_bytes` together."""
    table = pa.table({"a": [1.0] * 64, "b": ["t" * (n_bytes // 64)] * 64})
    options = {} if encoding is None else {"column_encoding": {"b": encoding}}
    parquet.write_table(table, path, compression="zstd", use_dictionary=encoding is None, **options)


def write_zeros(path, n_bytes):
    """Write a compressed npz file of `n_bytes`, which takes a thousandth of them."""
    n_rows = n_bytes // 808
    np.savez_compressed(path, x=np.zeros((n_rows, 100)), y=np.zeros(n_rows, dtype=np.int64))


def write_long_text(path, n_bytes):
    """Write a Parquet file with one text of a quarter of `n_bytes`, which needs several copies."""
    table = pa.table({"a": [1.0], "b": ["t" * (n_bytes // 4)]})
    parquet.write_table(table, path, compression="zstd")


def encode_thrift(number, length):
    """Return an integer in `length` bytes, as Parquet's metadata store it."""
    groups = [number * 2 >> 7 * index & 127 for index in range(length)]
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def write_forged(path, n_bytes):
    """Write a Parquet file like :func:`write_texts` whose metadata state a size of 1 byte."""

    def read_stated_size():
        return parquet.read_metadata(path).row_group(0).column(1).total_uncompressed_size

    write_texts(path, n_bytes)
    size = read_stated_size()
    length = -(-(2 * size).bit_length() // 7)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    forged = content[start:].replace(encode_thrift(size, length), encode_thrift(1, length))
    path.write_bytes(content[:start] + forged)
    assert read_stated_size() == 1


def write_images(folder, n_bytes):
    """Write four grey images that have `n_bytes` together, and whose files have almost none."""
    (folder / "cat").mkdir(parents=True)
    for number in range(4):
        image = Image.new("L", (1024, n_bytes // 4096))
        image.save(folder / "cat" / f"{number}.png", compress_level=1)


def write_sparse(path, n_bytes):
    """Write a file of `n_bytes` that is one hole."""
    with path.open("wb") as file:
        file.truncate(n_bytes)


def write_csv(path, n_bytes):
    path.write_bytes(b"a,b\n" + b"1,2\n" * (n_bytes // 4 - 1))


def load_student(path):
    """Read a student; torch is imported here, as only this case needs it."""
    from vicinal.students import load

    return load(path)


@pytest.mark.parametrize(
    ("write", "name", "load"),
    [
        (write_csv, "a.csv", read_table),
        (write_gz, "a.csv.gz", read_table),
        (write_texts, "a.parquet", read_table),
        (lambda *file: write_texts(*file, "DELTA_BYTE_ARRAY"), "a.parquet", read_table),
        (write_long_text, "a.parquet", read_table),
        (write_forged, "a.parquet", read_table),
        (write_images, "a", load_images),
        (write_zeros, "a.npz", load_npz),
        (write_sparse, "a.txt", read_ids),
        (write_sparse, "a.npz", read_arrays),
        (write_sparse, "a.pt", load_student),
    ],
)
def test_a_file_is_read_only_if_its_content_fits_into_memory(
    tmp_path, monkeypatch, write, name, load
):
    """Whatever its own size. A file that fits is read, or refused for another reason."""
    available = 4 * MEMORY_BYTES  # a trial takes some memory for itself
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: available)
    write(tmp_path / name, 4 * available)
    with pytest.raises(TooLittleMemory, match="more data than this machine has free memory"):
        load(tmp_path / name)
    (tmp_path / "small").mkdir()
    write(tmp_path / "small" / name, available // 4)
    if write is write_sparse:
        with pytest.raises(InvalidInput, match=r"read|damaged|holds|must be"):
            load(tmp_path / "small" / name)
    else:
        load(tmp_path / "small" / name)


def test_half_of_utf_16_text_is_counted(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * (MEMORY_BYTES // 6), encoding="utf-16")
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    assert (tmp_path / "a.csv").stat().st_size > MEMORY_BYTES
    assert len(read_table(tmp_path / "a.csv", CsvForm(encoding="utf-16"))) == MEMORY_BYTES // 6


def test_a_damaged_compressed_file_is_refused(tmp_path, monkeypatch):
    """Damage in a file that is decompressed to count its bytes is reported by its reader."""
    write_gz(tmp_path / "a.csv.gz", MEMORY_BYTES)
    content = (tmp_path / "a.csv.gz").read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(content[: len(content) // 2])
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 1 << 20)
    monkeypatch.setattr(declared_sizes, "_MAX_DEFLATE_RATIO", 1 << 30)
    with pytest.raises(InvalidInput, match=r"damaged|declares more"):
        read_table(tmp_path / "a.csv.gz")


TEXTS = ["a", "bb", None, "a"]
PARQUET_COLUMNS = {
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "large": pa.array(TEXTS, pa.large_string()),
    "binary": pa.array([b"a", None]),
    "list": pa.array([["a", "b"], None, []]),
    "struct": pa.array([{"a": "b", "c": 1}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8())),
    "no texts": pa.nulls(3, pa.string()),
    "nulls": pa.nulls(3),
    "uuid": pa.array([bytes(16)], pa.uuid()),
    "decimal": pa.array([1, 2], pa.decimal128(5)),
    "half": pa.array([1.0, None], pa.float16()),
    "byte": pa.array([1, 2], pa.uint8()),
    "truth": pa.array([True, False]),
}


@pytest.mark.parametrize("kind", PARQUET_COLUMNS)
def test_parquet_files_of_every_type_are_read(tmp_path, monkeypatch, kind):
    """Columns of equal names included; in a trial, and with no more memory than they need."""
    table = pa.Table.from_arrays([PARQUET_COLUMNS[kind]] * 2, names=["x", "x"])
    parquet.write_table(table, tmp_path / "a.parquet")
    assert _reading_trial.create_parquet_counter(tmp_path / "a.parquet")() >= 0
    monkeypatch.setattr(declared_sizes, "_read_in_trial", lambda *_: None)
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: table.nbytes)
    with parquet.ParquetFile(tmp_path / "a.parquet") as file:
        declared_sizes.require_parquet_memory(tmp_path / "a.parquet", file)


def test_a_trial_counts_categories_as_texts(tmp_path):
    texts = pa.array(["text", "t"] * 50)
    table = pa.table({"a": texts.dictionary_encode(), "b": texts.dictionary_encode(), "c": texts})
    parquet.write_table(table, tmp_path / "a.parquet")
    n_bytes = _reading_trial.create_parquet_counter(tmp_path / "a.parquet")()
    assert 0 <= n_bytes - 3 * texts.nbytes < 100  # bitmaps of missing values


def refuse_trial(*_):
    pytest.fail("a file whose size is certain was read in a process of its own")


@pytest.mark.parametrize(
    "column",
    [
        pa.ListArray.from_arrays([0, 1 << 20], pa.array(np.zeros(1 << 20))),
        pa.array(np.zeros(1 << 20)),
        pa.nulls((1 << 20) + 1, pa.string()),
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.float64(), [2]),
            pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 20)), 2),
        ),
    ],
    ids=["list", "numbers", "offsets of texts", "extension"],
)
def test_values_of_parquet_files_are_counted(tmp_path, monkeypatch, column):
    """Values of a list are not its rows, and a text without characters needs 4 bytes."""
    parquet.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    monkeypatch.setattr(declared_sizes, "_read_in_trial", refuse_trial)
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    with pytest.raises(TooLittleMemory):
        read_table(tmp_path / "a.parquet")


def test_a_parquet_file_of_few_texts_needs_no_trial(tmp_path, monkeypatch):
    """Each text could be as long as all together, and all are decompressed beside them."""
    monkeypatch.setattr(declared_sizes, "_read_in_trial", refuse_trial)
    write_long_text(tmp_path / "a.parquet", MEMORY_BYTES)
    texts = parquet.read_metadata(tmp_path / "a.parquet").row_group(0).column(1)
    needed = 8 + 4 + 2 * ((texts.total_compressed_size + 100) << 15)  # the limit of zstd
    for available in (None, needed):
        monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda free=available: free)
        read_table(tmp_path / "a.parquet")
    trials = []
    monkeypatch.setattr(declared_sizes, "_read_in_trial", lambda *trial: trials.append(trial))
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: needed - 1)
    read_table(tmp_path / "a.parquet")
    assert trials == [("parquet", tmp_path / "a.parquet")]


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError, TooLittleMemory])
@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_too_little_memory_is_not_called_damage(tmp_path, monkeypatch, error, name):
    def fail(*_):
        raise error

    write_texts(tmp_path / "a.parquet", 64)
    write_csv(tmp_path / "a.csv", 64)
    monkeypatch.setattr(tables, "require_parquet_memory", fail)
    monkeypatch.setattr(tables, "_read_strings", fail)
    with pytest.raises(error):
        read_table(tmp_path / name)
    with pytest.raises(error):
        read_table(tmp_path / name, CsvForm())


def write_compressed(path, **arrays):
    """Write a compressed npz file with a digest, as `write_arrays` does without compression."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    path.write_bytes(seal_archive(content.getvalue()))


def read_journal(path):
    with FileJournal(path.parent) as journal:
        return journal.read()


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (read_arrays, "a.npz"),
        (load_answers, "a.npz"),
        (read_journal, "journal.npz"),
        (ClusterChange.read, "a.npz"),
        (load_student, "a.pt"),
    ],
)
@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_archive_of_vicinal_is_not_called_damaged_without_memory(
    tmp_path, monkeypatch, load, name, is_compressed
):
    """A journal that is called damaged costs its budgets. File or content are too large."""
    write_sparse(tmp_path / name, 2 * MEMORY_BYTES)
    if is_compressed:
        write_compressed(tmp_path / name, x=np.zeros(MEMORY_BYTES // 4))
        assert (tmp_path / name).stat().st_size < MEMORY_BYTES
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    with pytest.raises(TooLittleMemory, match="more data than this machine has free memory"):
        load(tmp_path / name)


def test_a_large_header_of_an_array_is_not_read(tmp_path, monkeypatch):
    header = b"\x93NUMPY\x02\x00" + (2 * MEMORY_BYTES).to_bytes(4, "little")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header + bytes(2 * MEMORY_BYTES))
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    monkeypatch.setattr(
        declared_sizes, "_check_shape", lambda *_: pytest.fail("the header is read")
    )
    with pytest.raises(TooLittleMemory):
        load_npz(tmp_path / "a.npz")


def test_a_small_compressed_csv_file_is_not_decompressed_to_count(tmp_path, monkeypatch):
    write_gz(tmp_path / "a.csv.gz", 1 << 12)
    monkeypatch.setattr(gzip, "open", lambda *_: pytest.fail("the file is decompressed"))
    declared_sizes.require_csv_memory(tmp_path / "a.csv.gz")


def test_images_of_one_shape_need_memory_for_a_copy(tmp_path, monkeypatch):
    """Images of different shapes, such as portrait and landscape, do not."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)  # Pillow warns of such large images
    for folder, second_shape in (("different", (50, 40)), ("equal", (40, 50))):
        (tmp_path / folder).mkdir()
        Image.new("L", (40, 50)).save(tmp_path / folder / "0.png")
        Image.new("L", second_shape).save(tmp_path / folder / "1.png")
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: next(remaining))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remaining = iter([4000])
        assert len(load_images(tmp_path / "different")) == 2
        remaining = iter([4000, 4000])
        assert load_images(tmp_path / "equal").features.shape == (2, 50, 40)
        remaining = iter([4000, 3999])
        with pytest.raises(TooLittleMemory):
            load_images(tmp_path / "equal")


GB = 10**9


def write_group(folder, limit, used, cached, version):
    """Write the files of a control group, as the kernel does; sizes in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")]
    limit_name, used_name = names[version - 1]
    prefix = ["total_", ""][version - 1]
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / used_name).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"{prefix}active_file {cached // 4}\n{prefix}inactive_file {cached * 3 // 4}\nanon 7\n"
    )


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("group", ["/", "/a/b", "/a/b/gone"])
def test_memory_of_the_machine_its_groups_and_the_process_is_found(
    tmp_path, monkeypatch, version, group
):
    """The cache of files is free, and every group around the process counts."""
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable: 16000000 kB\n")
    (tmp_path / "cgroup").write_text(
        f"12:memory,other:{group}\n1:name=systemd:/x\n0::/\n" if version == 1 else f"0::{group}\n"
    )
    root = tmp_path / "groups" / ("memory" if version == 1 else "")
    write_group(tmp_path / "groups" / "x", 1, 1, 0, 2)  # a group of other controllers
    for name in ("_MEMINFO", "_CGROUP"):
        monkeypatch.setattr(declared_sizes, name, tmp_path / name.strip("_").lower())
    monkeypatch.setattr(declared_sizes, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(declared_sizes, "_find_free_address_space", lambda: None)
    assert declared_sizes.find_available_bytes() == 16_000_000 * 1024
    write_group(root, 8 * GB, 8 * GB - 1, 4 * GB, version)
    assert declared_sizes.find_available_bytes() == 4 * GB + 1
    write_group(root / "a" / "b", "max" if version == 2 else 2**63 - 4096, 5, 4, version)
    assert declared_sizes.find_available_bytes() == 4 * GB + 1
    write_group(root / "a", 3 * GB, GB, 0, version)
    assert declared_sizes.find_available_bytes() == (4 * GB + 1 if group == "/" else 2 * GB)
    write_group(root, 8 * GB, 9 * GB, 0, version)
    assert declared_sizes.find_available_bytes() == 0
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\nMemAvailable: 0 kB\n")
    write_group(root, 8 * GB, GB, 0, version)
    assert declared_sizes.find_available_bytes() == 0
    (tmp_path / "meminfo").unlink()
    (tmp_path / "cgroup").unlink()
    assert declared_sizes.find_available_bytes() is None
    monkeypatch.setattr(declared_sizes, "_find_free_address_space", lambda: 5)
    assert declared_sizes.find_available_bytes() == 5


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def write_zip(path, texts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


def write_xlsx(path, column="A", row=2):
    """Write a sheet with a text in A1, and 5 in another cell."""
    relation = f'<Relationship Id="r1" Type="{OFFICE}/{{}}" Target="{{}}"/>'
    relations = f"<Relationships>{relation}</Relationships>"
    cells = '<row r="1"><c r="A1" t="inlineStr"><is><t>x</t></is></c></row>'
    cells += f'<row r="{row}"><c r="{column}{row}"><v>5</v></c></row>'
    texts = {
        "_rels/.rels": relations.format("officeDocument", "xl/workbook.xml"),
        "xl/workbook.xml": '<workbook><sheets><sheet name="S" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations.format("worksheet", "sheet.xml"),
        "xl/sheet.xml": f"<worksheet><sheetData>{cells}</sheetData></worksheet>",
    }
    write_zip(path, texts)


def write_ods(path, n_columns, n_rows):
    """Write a sheet whose only cell is repeated."""
    cell = (
        '<table:table-cell office:value-type="float" office:value="1" '
        f'table:number-columns-repeated="{n_columns}"/>'
    )
    row = f'<table:table-row table:number-rows-repeated="{n_rows}">{cell}</table:table-row>'
    table = f'<table:table table:name="S">{row}</table:table>'
    texts = {
        "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
        "META-INF/manifest.xml": "<manifest/>",
        "content.xml": f"<office:spreadsheet>{table}</office:spreadsheet>",
    }
    write_zip(path, texts)


@pytest.mark.parametrize(
    ("write", "name", "place"),
    [
        (write_xlsx, "a.xlsx", ("XFD", 1 << 20)),
        (write_xlsx, "a.xlsx", ("FXSHRXX", (1 << 32) - 1)),  # more cells than addresses
        (write_ods, "a.ods", (1000, 20_000)),
    ],
)
def test_a_sheet_with_a_distant_cell_does_not_end_the_process(
    tmp_path, monkeypatch, write, name, place
):
    """Without a check, calamine prints a Rust backtrace and the command ends by a signal."""
    write(tmp_path / name, *place)
    assert (tmp_path / name).stat().st_size < 1 << 12
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 1 << 28)
    with pytest.raises(TooLittleMemory):
        read_table(tmp_path / name)


@pytest.fixture
def replace_calamine(tmp_path, monkeypatch):
    """Return a function that replaces calamine, in processes of their own, by a program's text.

    The text may use the names `result`, a file for its findings, and `sys`. It defines the `sheet`.
    """

    def replace(program, height=1, width=1):
        (tmp_path / "fake").mkdir(exist_ok=True)
        (tmp_path / "fake" / "python_calamine.py").write_text(
            f"import pathlib, sys\nresult = pathlib.Path({str(tmp_path / 'result')!r})\n"
            f"class sheet: height, width = {height}, {width}\n"
            "class CalamineWorkbook:\n"
            "    get_sheet_by_index = lambda self, _: sheet\n"
            "    @classmethod\n"
            f"    def from_path(cls, path):\n        {program}\n        return cls()\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "fake"), *sys.path]))
        write_xlsx(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    return replace


def test_the_cells_of_a_sheet_are_counted(replace_calamine, monkeypatch):
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    n_cells = MEMORY_BYTES // 32
    assert len(read_table(replace_calamine("pass", 2, n_cells // 2))) == 1
    with pytest.raises(TooLittleMemory):
        read_table(replace_calamine("pass", 1, n_cells + 1))


def test_the_memory_of_a_trial_is_limited(replace_calamine, monkeypatch):
    path = replace_calamine("bytearray(1 << 28)")
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 1 << 30)
    assert len(read_table(path)) == 1
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 1 << 27)
    with pytest.raises(TooLittleMemory):
        read_table(path)


@pytest.mark.parametrize(
    "program",
    [
        "raise BaseException('capacity overflow')",
        "raise MemoryError",
        "import os; os.abort()",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_trial_that_ends_without_memory_is_too_little_memory(replace_calamine, program):
    with pytest.raises(TooLittleMemory):
        read_table(replace_calamine(program))


def test_a_panic_of_a_trial_is_damage(replace_calamine):
    """It is no Exception, and would show a traceback; other errors are left to the reader."""
    with pytest.raises(InvalidInput, match="is damaged"):
        read_table(replace_calamine("raise BaseException('index out of bounds')"))
    assert len(read_table(replace_calamine("raise ValueError('x')"))) == 1


def test_a_trial_finds_no_module_of_vicinal(replace_calamine, tmp_path):
    """Its modules, such as `tabular`, must not be taken for others of the same name."""
    read_table(replace_calamine("result.write_text(repr(sys.path))"))
    search_path = (tmp_path / "result").read_text()
    assert str(Path(declared_sizes.__file__).parent) not in search_path


RUN_TRIAL = "import sys; from vicinal.declared_sizes import _read_in_trial as read; "


def test_a_trial_reads_no_input_and_leaves_no_core(replace_calamine, tmp_path):
    """A core file would hold cells, which are private."""
    path = replace_calamine("result.write_text(sys.stdin.read()); import os; os.abort()")
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_CORE, (r.RLIM_INFINITY,) * 2); "
        f"{RUN_TRIAL}from vicinal.errors import TooLittleMemory as Refused\n"
        f"try: read('sheet', {str(path)!r})\nexcept Refused: print('refused')"
    )
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-c", code]
    refusal = subprocess.check_output(command, input=b"private", cwd=tmp_path / "empty")
    assert refusal == b"refused\n"
    assert (tmp_path / "result").read_text() == ""
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_trial_ends_with_the_process_that_started_it(replace_calamine, tmp_path):
    path = replace_calamine("import os, time; result.write_text(f'{os.getpid()}.'); time.sleep(60)")
    parent = subprocess.Popen([sys.executable, "-c", f"{RUN_TRIAL} read('sheet', {str(path)!r})"])
    try:
        (tmp_path / "result").touch()
        wait_for(lambda: (tmp_path / "result").read_text().endswith("."))
    finally:
        parent.kill()
        parent.wait()
    pid = int((tmp_path / "result").read_text().rstrip("."))
    wait_for(lambda: has_ended(pid))


def wait_for(condition):
    """Return once a condition is true; fail after 20 seconds or more."""
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("the condition did not become true")


def has_ended(pid):
    """Return whether a process does not exist or is a zombie."""
    try:
        return ") Z" in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("text", [None, "#!/bin/sh\nexit 3\n", "#!/bin/sh\necho $*\n", "text"])
def test_a_healthy_sheet_is_read_where_no_trial_can_run(tmp_path, monkeypatch, text):
    """Python is missing, or is another program."""
    write_xlsx(tmp_path / "a.xlsx")
    if text is not None:
        (tmp_path / "python3").write_text(text)
        (tmp_path / "python3").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert read_table(tmp_path / "a.xlsx").to_pydict() == {"x": [5]}


@pytest.mark.parametrize("executable", ["/opt/frozen", "", None])
def test_a_frozen_program_is_not_started_again(tmp_path, monkeypatch, executable):
    write_xlsx(tmp_path / "a.xlsx")
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("started"))
    assert read_table(tmp_path / "a.xlsx").to_pydict() == {"x": [5]}


def test_a_key_is_not_read_beyond_its_length(tmp_path):
    write_sparse(tmp_path / "key", 1 << 42)
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(InvalidInput, match="must hold 32 bytes"):
        SigningKey(tmp_path / "key")


def test_verify_does_not_read_the_holes_of_a_ledger(tmp_path):
    """In a process of its own, as reading 4 TB would take an hour."""
    tools.make(tmp_path / "store").close()
    os.truncate(tmp_path / "store" / "ledger.db", 1 << 42)
    command = [sys.executable, "-m", "vicinal", "verify", str(tmp_path / "store")]
    subprocess.run(command, capture_output=True, check=True, timeout=60)


def test_bytes_around_a_hole_are_read_and_stay_apart(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        for start in (1 << 30, 1 << 40):
            file.seek(start)
            file.write(b"s" * 4096)
    chunks = list(declared_sizes.read_chunks(tmp_path / "a", 1000))
    assert b"".join(chunks).replace(b"\0", b"") == b"s" * 8192
    assert b"s" * 4097 not in b"".join(chunks)
    assert max(map(len, chunks)) <= 1000
    assert len(b"".join(chunks)) < 1 << 20


def test_a_sparse_file_in_a_backup_stays_sparse(tmp_path):
    """Its size is small enough for the disk, in case the holes are written."""
    with tools.make(tmp_path / "store") as store:
        store.backup(tmp_path / "backup")
    content = (tmp_path / "backup" / "records" / "features").read_bytes()
    os.truncate(tmp_path / "backup" / "records" / "features", 1 << 27)
    Store.restore(tmp_path / "backup", tmp_path / "new", accept_loss=True).close()
    assert (tmp_path / "new" / "records" / "features").read_bytes() == content
    used = sum(path.stat().st_blocks for path in tmp_path.rglob("*") if path.is_file())
    assert used * 512 < 1 << 26


def test_copies_have_the_content_of_sparse_files(tmp_path, monkeypatch):
    """Also if reads return less than requested; and none is begun that exceeds the disk."""
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 22)
        for start in (0, 1 << 20):
            file.seek(start)
            file.write(os.urandom(5000))
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, start: read(file, min(size, 999), start))
    copy_file(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "b").stat().st_blocks * 512 < 1 << 20
    free = SimpleNamespace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    copy_file(tmp_path / "a", tmp_path / "larger")  # holes need no space
    free.free = 5000
    with pytest.raises(StorageFailed, match="No space left"):
        copy_file(tmp_path / "a", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_sparse_file_of_a_change_is_wiped_without_being_written(tmp_path):
    """Its stored content is overwritten all the same: it may be about erased subjects."""
    with (tmp_path / "change").open("wb") as file:
        file.write(b"secret")
        file.truncate(1 << 26)
    os.link(tmp_path / "change", tmp_path / "kept")
    wipe_file(tmp_path / "change")
    assert not (tmp_path / "change").exists()
    with (tmp_path / "kept").open("rb") as file:
        assert file.read(10) == bytes(10)
    assert (tmp_path / "kept").stat().st_blocks * 512 < 1 << 20


def test_holes_of_a_sparse_file_are_cut_without_being_written(tmp_path, monkeypatch):
    """What is stored beyond the records is overwritten all the same."""
    cut_at = []
    monkeypatch.setattr(os, "ftruncate", lambda _, size: cut_at.append(size))
    rows = RecordFile(tmp_path / "rows", np.dtype(np.int32), 4, create=True)
    try:
        with (tmp_path / "rows").open("r+b") as file:
            file.truncate(1 << 26)
            for start in (0, 1 << 20, (1 << 26) - 4096):
                file.seek(start)
                file.write(b"secret" * 600)
        rows.truncate(2)
        assert cut_at == [32]
        with (tmp_path / "rows").open("rb") as file:
            assert file.read(32) == (b"secret" * 600)[:32]
            for start in (32, 1 << 20, (1 << 26) - 4096):
                file.seek(start)
                assert b"s" not in file.read(4096)
            assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 20
    finally:
        rows.close()
