"""Files that declare more than they hold are refused before memory or a disk is filled."""

import io
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import store_tools as tools
from vicinal import declared_sizes
from vicinal.datasets.dataset import load_npz
from vicinal.datasets.tables import load_table
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.features import PublicMap
from vicinal.store import Store
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
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31));"
        "from vicinal.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, "schema", str(tmp_path / "a.parquet")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    assert "declares more data than this machine has free memory" in process.stderr
    assert str(1 << 29) not in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_honest_files_are_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", 1 << 20)
    assert parquet.read_metadata(tmp_path / "a.parquet").num_rows == 1 << 20
    assert len(load_table(tmp_path / "a.parquet").features) == 1 << 20


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
