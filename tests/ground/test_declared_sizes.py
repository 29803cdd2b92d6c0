"""Files that declare more than they hold are refused before memory or a disk is filled."""

import gzip
import io
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

import store_tools as tools
from vicinal import declared_sizes
from vicinal.datasets.dataset import load_images, load_npz
from vicinal.datasets.id_lists import read_ids
from vicinal.datasets.tables import read_table
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.features import PublicMap
from vicinal.features.csv_form import CsvForm
from vicinal.ledger.sealed_files import read_arrays
from vicinal.store import Store
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


def write_parquet(path, n_rows):
    """Write a small Parquet file with many equal rows, which take almost no space."""
    batch = pa.table({"x": np.zeros(1 << 20)})
    with parquet.ParquetWriter(path, batch.schema, compression="zstd") as writer:
        for _ in range(n_rows >> 20):
            writer.write_table(batch)


@pytest.mark.quick
@pytest.mark.parametrize("load", [load_npz, PublicMap.load])
@pytest.mark.parametrize("shape", [(ROWS, 8), (3, 8)])
def test_an_array_that_declares_more_than_it_has_is_refused(tmp_path, load, shape):
    write_npz(tmp_path / "a.npz", shape, bytes(64))
    with pytest.raises(InvalidInput) as refused:
        load(tmp_path / "a.npz")
    assert str(ROWS) not in str(refused.value)


@pytest.mark.quick
def test_an_archive_that_needs_more_memory_than_there_is_is_refused(tmp_path, monkeypatch):
    """Fails if zeros, which compress a thousand times, are unpacked before they are counted."""
    np.savez_compressed(
        tmp_path / "a.npz", x=np.zeros((1000, 100)), y=np.zeros(1000, dtype=np.int64)
    )
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 790_000)
    with pytest.raises(InvalidInput, match="declares more data than this machine has free memory"):
        load_npz(tmp_path / "a.npz")
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: 900_000)
    assert load_npz(tmp_path / "a.npz").features.shape == (1000, 100)


def test_a_parquet_file_of_endless_rows_is_refused(tmp_path):
    """In a process of its own with 2 GiB of memory, which 2^29 rows of 8 bytes exceed."""
    write_parquet(tmp_path / "a.parquet", 1 << 29)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 23
    assert_refused_in_2_gib("schema", str(tmp_path / "a.parquet"), hidden=str(1 << 29))


def assert_refused_in_2_gib(*arguments, hidden="Traceback"):
    """Assert that a command refuses a file in one sentence, in a process with 2 GiB of memory."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        "from vicinal.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert "declares more data than this machine has free memory" in process.stderr
    assert hidden not in process.stderr
    assert len(process.stderr.splitlines()) == 1


MEMORY_BYTES = 1 << 22
"""Free memory in tests that simulate a small machine."""


def write_gz(path, n_bytes):
    """Write a compressed CSV file of `n_bytes`, which takes a thousandth of them."""
    with gzip.open(path, "wb") as file:
        file.write(b"a,b\n" + b"1,2\n" * (n_bytes // 4 - 1))


def write_texts(path, n_bytes, encoding=None):
    """Write a Parquet file of 64 rows with the same text, `n_bytes` together."""
    table = pa.table({"a": [1.0] * 64, "b": ["t" * (n_bytes // 64)] * 64})
    options = {} if encoding is None else {"column_encoding": {"b": encoding}}
    parquet.write_table(table, path, compression="zstd", use_dictionary=encoding is None, **options)


def write_images(folder, n_bytes):
    """Write four grey images that have `n_bytes` together, and whose files have almost none."""
    (folder / "cat").mkdir(parents=True)
    for number in range(4):
        image = Image.new("L", (1024, n_bytes // 4096))
        image.save(folder / "cat" / f"{number}.png")


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


@pytest.mark.quick
@pytest.mark.parametrize(
    ("write", "name", "load"),
    [
        (write_csv, "a.csv", read_table),
        (write_gz, "a.csv.gz", read_table),
        (write_texts, "a.parquet", read_table),
        (lambda *file: write_texts(*file, "DELTA_BYTE_ARRAY"), "a.parquet", read_table),
        (write_images, "a", load_images),
        (write_sparse, "a.txt", read_ids),
        (write_sparse, "a.npz", read_arrays),
        (write_sparse, "a.pt", load_student),
    ],
)
def test_a_file_is_read_only_if_its_content_fits_into_memory(
    tmp_path, monkeypatch, write, name, load
):
    """Whatever its own size. A file that fits is read, or refused for another reason."""
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    write(tmp_path / name, 4 * MEMORY_BYTES)
    with pytest.raises(InvalidInput, match="declares more data than this machine has free memory"):
        load(tmp_path / name)
    (tmp_path / "small").mkdir()
    write(tmp_path / "small" / name, MEMORY_BYTES // 4)
    if write is write_sparse:
        with pytest.raises(InvalidInput, match=r"read|damaged|holds|must be"):
            load(tmp_path / "small" / name)
    else:
        load(tmp_path / "small" / name)


@pytest.mark.quick
def test_half_of_utf_16_text_is_counted(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * (MEMORY_BYTES // 6), encoding="utf-16")
    monkeypatch.setattr(declared_sizes, "find_available_bytes", lambda: MEMORY_BYTES)
    assert (tmp_path / "a.csv").stat().st_size > MEMORY_BYTES
    assert len(read_table(tmp_path / "a.csv", CsvForm(encoding="utf-16"))) == MEMORY_BYTES // 6


@pytest.mark.quick
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
    "no texts": pa.nulls(3, pa.string()),
}


@pytest.mark.quick
@pytest.mark.parametrize("kind", PARQUET_COLUMNS)
@pytest.mark.parametrize("encoding", [None, "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_of_parquet_files_are_counted_in_every_form(tmp_path, kind, encoding):
    """Columns of equal names included."""
    table = pa.Table.from_arrays([PARQUET_COLUMNS[kind]] * 2, names=["x", "x"])
    options = {} if encoding is None else {"column_encoding": encoding, "use_dictionary": False}
    try:
        parquet.write_table(table, tmp_path / "a.parquet", **options)
        with parquet.ParquetFile(tmp_path / "a.parquet") as file:
            file.read()
    except OSError:  # pyarrow writes no numbers, and reads no dictionaries, in the other encodings
        return
    declared_sizes.require_parquet_memory(
        tmp_path / "a.parquet", parquet.read_metadata(tmp_path / "a.parquet")
    )


OFFICE = "http://schemas.openxmlformats.org/"
ODF = "urn:oasis:names:tc:opendocument:xmlns:"


def write_zip(path, texts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, text)


def write_xlsx(path, column, row):
    """Write a sheet with a text in A1 and 5 in A2, and a text in a cell far away."""
    relations = f'<Relationships xmlns="{OFFICE}package/2006/relationships"><Relationship Id="r1" '
    kind = f'Type="{OFFICE}officeDocument/2006/relationships'
    cell = '<row r="{1}"><c r="{0}{1}" t="inlineStr"><is><t>x</t></is></c></row>'.format
    rows = f'{cell("A", 1)}<row r="2"><c r="A2"><v>5</v></c></row>{cell(column, row)}'
    if row == 1:
        rows = rows.rpartition("<row")[0]
    sheets = f'xmlns="{OFFICE}spreadsheetml/2006/main"'
    link = f'xmlns:r="{OFFICE}officeDocument/2006/relationships"'
    types = f"{OFFICE}package/2006/content-types"
    texts = {
        "[Content_Types].xml": f'<Types xmlns="{types}"/>',
        "_rels/.rels": f'{relations}{kind}/officeDocument" Target="xl/workbook.xml"/>',
        "xl/_rels/workbook.xml.rels": (
            f'{relations}{kind}/worksheet" Target="worksheets/sheet1.xml"/>'
        ),
        "xl/workbook.xml": (
            f'<workbook {sheets} {link}><sheets><sheet name="S" sheetId="1" r:id="r1"/></sheets>'
            "</workbook>"
        ),
        "xl/worksheets/sheet1.xml": (
            f"<worksheet {sheets}><sheetData>{rows}</sheetData></worksheet>"
        ),
    }
    texts |= {name: text + "</Relationships>" for name, text in texts.items() if "_rels" in name}
    write_zip(path, texts)


def write_ods(path, n_columns, n_rows):
    """Write a sheet whose only cell is repeated."""
    spaces = " ".join(f'xmlns:{name}="{ODF}{name}:1.0"' for name in ("office", "table", "text"))
    cell = (
        f'<table:table-cell office:value-type="float" office:value="1" '
        f'table:number-columns-repeated="{n_columns}"><text:p>1</text:p></table:table-cell>'
    )
    row = f'<table:table-row table:number-rows-repeated="{n_rows}">{cell}</table:table-row>'
    write_zip(path, {
        "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
        "META-INF/manifest.xml": f'<manifest:manifest xmlns:manifest="{ODF}manifest:1.0"/>',
        "content.xml": (
            f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="S">{row}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>"
        ),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("write", "name", "place"),
    [(write_xlsx, "a.xlsx", ("XFD", 1 << 20)), (write_ods, "a.ods", (1000, 100_000))],
)
def test_a_sheet_with_a_distant_cell_does_not_end_the_process(tmp_path, write, name, place):
    """Without a check, calamine prints a Rust backtrace and the command ends by a signal."""
    write(tmp_path / name, *place)
    assert (tmp_path / name).stat().st_size < 1 << 12
    assert_refused_in_2_gib("schema", str(tmp_path / name))


@pytest.mark.quick
def test_a_small_sheet_is_read(tmp_path):
    write_xlsx(tmp_path / "a.xlsx", "A", 1)
    assert read_table(tmp_path / "a.xlsx").to_pydict() == {"x": [5]}


@pytest.mark.quick
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


@pytest.mark.quick
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


def test_honest_files_are_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", 1 << 20)
    assert parquet.read_metadata(tmp_path / "a.parquet").num_rows == 1 << 20
    assert len(read_table(tmp_path / "a.parquet")) == 1 << 20


@pytest.mark.quick
def test_a_sparse_file_in_a_backup_does_not_fill_the_disk(tmp_path):
    with tools.make(tmp_path / "store") as store:
        store.backup(tmp_path / "backup")
    os.truncate(tmp_path / "backup" / "records" / "features", 1 << 42)
    with pytest.raises(StorageFailed, match="No space left"):
        Store.restore(tmp_path / "backup", tmp_path / "new", accept_loss=True)
    used = sum(path.stat().st_blocks for path in tmp_path.rglob("*") if path.is_file())
    assert used * 512 < 1 << 26


@pytest.mark.quick
def test_holes_of_a_sparse_file_are_cut_without_being_written(tmp_path, monkeypatch):
    """What is stored beyond the records is overwritten all the same."""
    cut_at = []
    monkeypatch.setattr(os, "ftruncate", lambda _, size: cut_at.append(size))
    rows = RecordFile(tmp_path / "rows", np.dtype(np.int32), 4, create=True)
    try:
        with (tmp_path / "rows").open("r+b") as file:
            file.truncate(1 << 40)
            for start in (0, 1 << 20, (1 << 40) - 4096):
                file.seek(start)
                file.write(b"secret" * 600)
        rows.truncate(2)
        assert cut_at == [32]
        with (tmp_path / "rows").open("rb") as file:
            assert file.read(32) == (b"secret" * 600)[:32]
            for start in (32, 1 << 20, (1 << 40) - 4096):
                file.seek(start)
                assert b"s" not in file.read(4096)
    finally:
        rows.close()
