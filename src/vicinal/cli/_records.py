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

from vicinal import datasets, distributed, features, serving, targets
from vicinal import store as stores
from vicinal.errors import InvalidInput, StoreInUse, UnusableRows

if TYPE_CHECKING:
    from vicinal._arrays import AnyArray
    from vicinal._checks import SubjectId

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
) -> Iterator[stores.Store | distributed.Coordinator]:
    how = {"accept_loss": accept_loss, "reading": reading}
    if not distributed.is_cluster(path):
        if ray is not None:
            raise InvalidInput(
                f"The 'ray' option needs a cluster, and {path} is not one. Turn a store into a "
                "cluster with: vicinal shard"
            )
        with stores.Store.open(path, **how) as store:
            yield store
        return
    with ExitStack() as resources:
        connect = (
            distributed.local_transports
            if ray is None
            else resources.enter_context(engine_at(ray)).transports
        )
        cluster = distributed.Coordinator.open(path, connect, shard_s, **how)
        yield resources.enter_context(cluster)


@contextmanager
def looked_at(
    path: Path, *, accept_loss: bool = False, reading: bool = False
) -> Iterator[stores.BaseStore | serving.ServedStore]:
    """Open what lies at `path`; a service that has it open is asked instead."""
    with ExitStack() as resources:
        opened: stores.BaseStore | serving.ServedStore
        try:
            opened = resources.enter_context(
                opened_at(path, accept_loss=accept_loss, reading=reading)
            )
        except StoreInUse:
            opened = serving.ServedStore(path)
            if accept_loss or not opened.answers:
                raise
        yield opened


@contextmanager
def engine_at(ray: str) -> Iterator[distributed.RayCluster]:
    options: dict[str, Any] = {"memory": _MEMORY} if ray == _LOCAL else {}
    engine = distributed.RayCluster(None if ray == _LOCAL else ray, **options)
    try:
        yield engine
    finally:
        engine.stop()


def listed_ids(single: list[str] | None, listed: Path | None) -> list[SubjectId]:
    from vicinal import _checks

    ids = _checks.subject_ids("subject", single or [])
    return [*ids, *([] if listed is None else datasets.read_ids(listed))]


@contextmanager
def local_file(data: str) -> Iterator[Path]:
    """Yield the path of a file; standard input becomes one for as long as it is needed."""
    if data != STREAM:
        yield Path(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            content = datasets.read_whole(sys.stdin.fileno())
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
    extractor: stores.StoreExtractor,
    label: str | None = None,
    subject: str | None = None,
    columns: Sequence[str] = (),
    *,
    public: bool = False,
) -> datasets.Dataset:
    """Return the records of a file, raw, as the store's extractor takes them.

    `columns` are those of numbers that records carry in place of a label. How a `public` CSV file
    is written is found; how others are, the schema says.
    """
    if path.is_dir():
        return datasets.load_images(path)
    if path.name.endswith(".npz") and extractor.kind != "table":
        return datasets.load_table(path)
    options: dict[str, Any] = {"columns": extractor.columns}
    if extractor.kind == "table":
        options = {"schema": features.TableSchema.from_dict(extractor.options["schema"])}
    elif extractor.kind == "text":
        if extractor.columns is not None and len(extractor.columns) > 1:
            raise InvalidInput("The 'columns' option must name one column of texts.")
        options = {"text": extractor.columns[0] if extractor.columns else "text"}
    form = form_of(path, extractor, public=public)
    with naming(path, public=public):
        return datasets.load_table(path, label, subject, targets=columns, form=form, **options)


def form_of(path: Path, extractor: stores.StoreExtractor, *, public: bool) -> features.CsvForm:
    """Return how a CSV file is written: as the schema says, and as found if it is public."""
    declared = features.CsvForm()
    if extractor.kind == "table":
        declared = features.TableSchema.from_dict(extractor.options["schema"]).file
    return datasets.csv_form(path, marks=declared) if public else declared


def read_labelled(
    path: Path,
    extractor: stores.StoreExtractor,
    target: targets.Target,
    label: str | None,
    subject: str | None,
) -> tuple[datasets.Dataset, AnyArray]:
    dataset = read_records(path, extractor, label, subject, target_columns(target, label))
    if dataset.labels is None:
        raise InvalidInput("The 'label' option must name the column of labels.")
    return dataset, dataset.labels


def target_columns(target: targets.Target, label: str | None) -> list[str]:
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
    path: Path, extractor: stores.StoreExtractor, name: str | None, answer_columns: Sequence[str]
) -> tuple[dict[str, Any], datasets.Dataset]:
    """Return what goes before the answers (a column, or names of images), and the queries.

    Raises InvalidInput if it has the name of one of the answers' columns.
    """
    if name is None:
        if path.is_dir() and FILE_COLUMN in answer_columns:
            raise InvalidInput(
                f"The answers have a column {FILE_COLUMN!r}, in which the names of images would "
                "stand. Pass the images as an npz file, without names."
            )
        dataset = read_records(path, extractor, public=True)
        return ({} if dataset.names is None else {FILE_COLUMN: list(dataset.names)}), dataset
    name = datasets.column_name(name)
    if name in answer_columns:
        raise InvalidInput(
            f"The 'id' option must not be {name!r}, because the answers have a column of that "
            "name. Rename the column in the file of queries, and name it anew."
        )
    if path.is_dir() or path.name.endswith(".npz"):
        raise InvalidInput("The 'id' option needs a table: images and npz files have no columns.")
    table = datasets.read_table(path, form_of(path, extractor, public=True))
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
