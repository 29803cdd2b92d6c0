"""How commands open a store or a cluster, and read records, queries and ids."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import InvalidInput, StoreInUse, UnusableRows

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray
    from vicinal.checks import SubjectId
    from vicinal.datasets.dataset import Dataset
    from vicinal.distributed.coordinator import Coordinator
    from vicinal.distributed.ray_cluster import RayCluster
    from vicinal.features.csv_form import CsvForm
    from vicinal.serving.local_socket import ServedStore
    from vicinal.store.base_store import BaseStore
    from vicinal.store.store import Store
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.targets.target import Target

STREAM = "-"
"""Stands for standard input and output."""

_MAGIC = {b"PAR1": ".parquet", b"PK\x03\x04": ".npz", b"\x1f\x8b": ".csv.gz"}
FILE_COLUMN = "file"
"""Column of answers with the names of images."""

_LOCAL = "local"
_MEMORY = 256 << 20
"""Bytes of the object store of an engine that is started here: it holds a few blocks."""


@contextmanager
def opened_at(
    path: Path,
    ray: str | None = None,
    shard_s: float = 30.0,
    *,
    accept_loss: bool = False,
    reading: bool = False,
) -> Iterator[Store | Coordinator]:
    from vicinal.distributed.coordinator import Coordinator
    from vicinal.distributed.folders import is_cluster
    from vicinal.distributed.transports import local_transports
    from vicinal.store.store import Store

    how = {"accept_loss": accept_loss, "reading": reading}
    if not is_cluster(path):
        if ray is not None:
            raise InvalidInput(
                f"The 'ray' option needs a cluster, and {path} is not one. Turn a store into a "
                "cluster with: vicinal shard"
            )
        with Store.open(path, **how) as store:
            yield store
        return
    with ExitStack() as resources:
        connect = (
            local_transports if ray is None else resources.enter_context(engine_at(ray)).transports
        )
        cluster = Coordinator.open(path, connect, shard_s, **how)
        yield resources.enter_context(cluster)


@contextmanager
def looked_at(
    path: Path, *, accept_loss: bool = False, reading: bool = False
) -> Iterator[BaseStore | ServedStore]:
    """Open what lies at `path`; a service that has it open is asked instead."""
    from vicinal.serving.local_socket import ServedStore

    with ExitStack() as resources:
        opened: BaseStore | ServedStore
        try:
            opened = resources.enter_context(
                opened_at(path, accept_loss=accept_loss, reading=reading)
            )
        except StoreInUse:
            opened = ServedStore(path)
            if accept_loss or not opened.answers:
                raise
        yield opened


@contextmanager
def engine_at(ray: str) -> Iterator[RayCluster]:
    from vicinal.distributed.ray_cluster import RayCluster

    options: dict[str, Any] = {"memory": _MEMORY} if ray == _LOCAL else {}
    engine = RayCluster(None if ray == _LOCAL else ray, **options)
    try:
        yield engine
    finally:
        engine.stop()


def listed_ids(single: list[str] | None, listed: Path | None) -> list[SubjectId]:
    from vicinal import checks
    from vicinal.datasets.id_lists import read_ids

    ids = checks.subject_ids("subject", single or [])
    return [*ids, *([] if listed is None else read_ids(listed))]


@contextmanager
def local_file(data: str) -> Iterator[Path]:
    """Yield the path of a file; standard input becomes one for as long as it is needed."""
    from vicinal.datasets.id_lists import read_whole

    if data != STREAM:
        yield Path(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            content = read_whole(sys.stdin.fileno())
        except io.UnsupportedOperation:  # another program's, or a test's, that is no file
            content = sys.stdin.buffer.read()
        suffix = next((s for magic, s in _MAGIC.items() if content.startswith(magic)), ".csv")
        if (
            suffix == ".npz" and b"xl/workbook.xml" in content
        ):  # as an npz file, it is a zip archive
            suffix = ".xlsx"
        path = Path(folder) / f"standard input{suffix}"
        path.write_bytes(content)
        try:
            yield path
        except InvalidInput as error:
            raise InvalidInput(str(error).replace(f"{folder}/", "")) from None


@contextmanager
def naming(path: Path, more: str = "", *, public: bool = False) -> Iterator[None]:
    """Put the file's name in front of what is wrong with it, and `more` behind.

    Of a `public` file the rows that do not fit are told, too.
    """
    try:
        yield
    except InvalidInput as error:
        named = str(path) in str(error)
        if named and not more:
            raise
        told = error.located if public and isinstance(error, UnusableRows) else error
        raise InvalidInput(f"{'' if named else f'{path}: '}{told}{more}") from None


def read_records(
    path: Path,
    extractor: StoreExtractor,
    label: str | None = None,
    subject: str | None = None,
    columns: Sequence[str] = (),
    *,
    public: bool = False,
) -> Dataset:
    """Return the records of a file, raw, as the store's extractor takes them.

    `columns` are those of numbers that records carry in place of a label. How a `public` CSV file
    is written is found; how others are, the schema says.
    """
    from vicinal.datasets.dataset import load_images
    from vicinal.datasets.tables import load_table
    from vicinal.features.table_features import warn_of_others
    from vicinal.features.table_schema import TableSchema

    if path.is_dir():
        return load_images(path)
    if path.name.endswith(".npz") and extractor.kind != "table":
        return load_table(path)
    options: dict[str, Any] = {"columns": extractor.columns}
    if extractor.kind == "table":
        options = {"schema": TableSchema.from_dict(extractor.options["schema"])}
    elif extractor.kind == "text":
        if extractor.columns is not None and len(extractor.columns) > 1:
            raise InvalidInput("The 'columns' option must name one column of texts.")
        options = {"text": extractor.columns[0] if extractor.columns else "text"}
    form = form_of(path, extractor, public=public)
    with naming(path, public=public):
        dataset = load_table(path, label, subject, targets=columns, form=form, **options)
    if public and "schema" in options:
        warn_of_others(path, dataset.features, options["schema"])
    return dataset


def form_of(path: Path, extractor: StoreExtractor, *, public: bool) -> CsvForm:
    """Return how a CSV file is written: as the schema says, and as found if it is public."""
    from vicinal.datasets.tables import csv_form
    from vicinal.features.csv_form import CsvForm
    from vicinal.features.table_schema import TableSchema

    declared = CsvForm()
    if extractor.kind == "table":
        declared = TableSchema.from_dict(extractor.options["schema"]).file
    return csv_form(path, marks=declared) if public else declared


def read_labelled(
    path: Path, extractor: StoreExtractor, target: Target, label: str | None, subject: str | None
) -> tuple[Dataset, AnyArray]:
    dataset = read_records(path, extractor, label, subject, target_columns(target, label))
    if dataset.labels is None:
        raise InvalidInput("The 'label' option must name the column of labels.")
    return dataset, dataset.labels


def target_columns(target: Target, label: str | None) -> list[str]:
    """Return the columns that numbers or several labels stand in; none where there are classes.

    Raises InvalidInput with a column of labels where each target is a column of its own.
    """
    if target.voted:
        return []
    if label is not None:
        raise InvalidInput(
            "The 'label' option is for classes. Numbers and several labels are read from the "
            "columns that bear their names."
        )
    return [str(name) for name in target.names]


def read_queries(
    path: Path, extractor: StoreExtractor, name: str | None, answer_columns: Sequence[str]
) -> tuple[dict[str, Any], Dataset]:
    """Return what goes before the answers (a column, or names of images), and the queries.

    Raises InvalidInput if it has the name of one of the answers' columns.
    """
    from vicinal.datasets.tables import column_name, read_table

    if name is None:
        if path.is_dir() and FILE_COLUMN in answer_columns:
            raise InvalidInput(
                f"The answers have a column {FILE_COLUMN!r}, in which the names of images would "
                "stand. Pass the images as an npz file, without names."
            )
        dataset = read_records(path, extractor, public=True)
        return ({} if dataset.names is None else {FILE_COLUMN: list(dataset.names)}), dataset
    name = column_name(name)
    if name in answer_columns:
        raise InvalidInput(
            f"The 'id' option must not be {name!r}, because the answers have a column of that "
            "name. Rename the column in the file of queries, and name it anew."
        )
    if path.is_dir() or path.name.endswith(".npz"):
        raise InvalidInput("The 'id' option needs a table: images and npz files have no columns.")
    table = read_table(path, form_of(path, extractor, public=True))
    if name not in table.column_names:
        raise InvalidInput(f"{path} has no column {name!r}, which --id names.")
    if extractor.kind == "columns" and extractor.columns is None:
        others = [column for column in table.column_names if column != name]
        extractor = replace(extractor, columns=others)
    dataset = read_records(path, extractor, public=True)
    rows: Any = dataset.features
    declared = extractor.options.get("schema", {}).get("columns", {})
    if extractor.kind == "table" and name not in declared:
        dataset = replace(dataset, features=rows.drop_columns([name]))
    return {name: table[name]}, dataset
