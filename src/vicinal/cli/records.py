"""Opening of stores and clusters, and reading of records, queries and subject ids.

Files of records are tables, npz files or folders of images or texts. An `extractor` selects the
columns of features, or has the schema of the table. `label` and `subject` name the columns of
labels and of subject ids.
"""

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
    from vicinal.features.table_schema import TableSchema
    from vicinal.serving.local_socket import ServedStore
    from vicinal.store.base_store import BaseStore
    from vicinal.store.store import Store
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.targets.target import Target

STREAM = "-"
"""Path that stands for standard input or output."""

FILE_COLUMN = "file"
"""Column of answers with the names of the files in a folder of images or texts."""

NO_SUBJECT_NOTE = (
    "without --subject, every row counts as a subject of its own. A person with several rows is "
    "not protected as one subject"
)
"""Note without its full stop on records without subject ids."""

_SUFFIX_OF_MAGIC = {b"PAR1": ".parquet", b"PK\x03\x04": ".npz", b"\x1f\x8b": ".csv.gz"}
_LOCAL_RAY = "local"
_LOCAL_RAY_BYTES = 256 << 20
"""Size of the object store of a Ray engine that is started here: it holds a few blocks."""


@contextmanager
def open_store(
    path: Path,
    ray: str | None = None,
    shard_timeout_s: float = 30.0,
    *,
    accept_lost_charges: bool = False,
    read_only: bool = False,
    http_request: str | None = None,
) -> Iterator[Store | Coordinator]:
    """Open the store or cluster in the folder `path`.

    `ray`: address of the Ray engine that runs a cluster's shards, "local" to start one, None to run
    them in this process. `shard_timeout_s`: time to wait for shards. `accept_lost_charges`: open a
    store that has lost its newest charges, and count all its budgets as spent. `http_request`:
    method and path by which a running service does the same as the command, and the role of the
    key; None if no request does. StoreInUse beside a running service names it.
    """
    from vicinal.distributed.coordinator import Coordinator
    from vicinal.distributed.folders import is_cluster
    from vicinal.distributed.transports import local_transports
    from vicinal.store.store import Store

    with ExitStack() as resources:
        resources.enter_context(_explain_service(path, http_request))
        if is_cluster(path):
            connect = local_transports
            if ray is not None:
                connect = resources.enter_context(connect_ray(ray)).transports
            cluster = Coordinator.open(
                path, connect, shard_timeout_s, accept_loss=accept_lost_charges, read_only=read_only
            )
            yield resources.enter_context(cluster)
        elif ray is None:
            store = Store.open(path, accept_loss=accept_lost_charges, read_only=read_only)
            yield resources.enter_context(store)
        else:
            raise InvalidInput(
                f"The 'ray' option needs a cluster, and {path} is not one. Turn a store into a "
                "cluster with: vicinal shard"
            )


@contextmanager
def _explain_service(path: Path, http_request: str | None) -> Iterator[None]:
    """Wrap the opening of the store at `path`: StoreInUse names the request to a running service.

    `http_request`: method and path of the equivalent HTTP request, with the kind of key that it
    needs; None if there is none.
    """
    from vicinal.serving.local_socket import ServedStore

    try:
        yield
    except StoreInUse:
        if not ServedStore(path).is_reachable:
            raise
        remedy = "Stop the service first."
        if http_request is not None:
            remedy = f"Send the service {http_request} instead, or stop it first."
        raise StoreInUse(f"A running service has {path} open. {remedy}") from None


@contextmanager
def open_store_or_service(
    path: Path, *, accept_lost_charges: bool = False, read_only: bool = False
) -> Iterator[BaseStore | ServedStore]:
    """Open as :func:`open_store`, or connect to the service that has the store or cluster open."""
    from vicinal.serving.local_socket import ServedStore

    with ExitStack() as resources:
        opened: BaseStore | ServedStore
        try:
            opened = resources.enter_context(
                open_store(path, accept_lost_charges=accept_lost_charges, read_only=read_only)
            )
        except StoreInUse:
            opened = ServedStore(path)
            if accept_lost_charges or not opened.is_reachable:
                raise
        yield opened


@contextmanager
def connect_ray(address: str) -> Iterator[RayCluster]:
    """Yield the Ray engine at an address, or one started here for the address "local"."""
    from vicinal.distributed.ray_cluster import RayCluster

    is_local = address == _LOCAL_RAY
    engine = RayCluster(None, memory=_LOCAL_RAY_BYTES) if is_local else RayCluster(address)
    try:
        yield engine
    finally:
        engine.stop()


def collect_subject_ids(ids: list[str] | None, id_file: Path | None) -> list[SubjectId]:
    """Return the subject ids given one by one, followed by those in a file with one per line."""
    from vicinal import checks
    from vicinal.datasets.id_lists import read_ids

    listed_ids = [] if id_file is None else read_ids(id_file)
    return [*checks.subject_ids("subject", ids or []), *listed_ids]


@contextmanager
def provide_file(data: str) -> Iterator[Path]:
    """Yield the path of a file; for "-", of a temporary file with the content of standard input."""
    from vicinal.datasets.id_lists import read_to_end

    if data != STREAM:
        yield Path(data)
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            content = read_to_end(sys.stdin.fileno())
        except io.UnsupportedOperation:  # a program or test has replaced standard input
            content = sys.stdin.buffer.read()
        suffixes = (s for magic, s in _SUFFIX_OF_MAGIC.items() if content.startswith(magic))
        suffix = next(suffixes, ".csv")
        # Excel and npz files are both zip archives.
        if suffix == ".npz" and b"xl/workbook.xml" in content:
            suffix = ".xlsx"
        path = Path(folder) / f"standard input{suffix}"
        try:
            path.write_bytes(content)
        except OSError as error:
            raise InvalidInput(
                f"Standard input cannot be copied to the folder {folder}: {error.strerror}. Name "
                "another folder in the environment variable TMPDIR."
            ) from None
        try:
            yield path
        except InvalidInput as error:
            raise InvalidInput(str(error).replace(f"{folder}/", "")) from None


@contextmanager
def add_file_to_errors(path: Path, suffix: str = "", *, public: bool = False) -> Iterator[None]:
    """Prepend the file's name to messages of InvalidInput that lack it, and append `suffix`.

    For a `public` file, the messages also list the unusable rows, which are private in other files.
    """
    try:
        yield
    except InvalidInput as error:
        has_name = str(path) in str(error)
        if has_name and not suffix:
            raise
        message = error.located if public and isinstance(error, UnusableRows) else error
        prefix = "" if has_name else f"{path}: "
        raise InvalidInput(f"{prefix}{message}{suffix}") from None


def get_table_schema(extractor: StoreExtractor) -> TableSchema:
    """Return the schema of an extractor of the kind "table"."""
    from vicinal.features.table_schema import TableSchema

    return TableSchema.from_dict(extractor.options["schema"])


def is_table(path: Path) -> bool:
    """Return whether a file has named columns: it is no folder and no npz file."""
    return not path.is_dir() and path.suffix != ".npz"


def read_records(
    path: Path,
    extractor: StoreExtractor,
    label: str | None = None,
    subject: str | None = None,
    targets: Sequence[str] = (),
    *,
    public: bool = False,
) -> Dataset:
    """Return the raw records of a file or folder, as the store's extractor accepts them.

    `targets` names the columns of target numbers. The format of a `public` CSV file is detected;
    private ones have the format in the schema.
    """
    from vicinal.datasets.dataset import load_images, load_texts
    from vicinal.datasets.tables import load_table
    from vicinal.features.table_features import warn_of_undeclared_categories

    if path.is_dir():
        if extractor.kind in ("columns", "table"):
            raise InvalidInput(
                f"{path} is a folder, so the 'features' option must be hog or image if it holds "
                f"images, or text if it holds texts. Got {extractor.kind}."
            )
        dataset = load_texts(path) if extractor.kind == "text" else load_images(path)
        return _check_named(dataset, "LABEL/PERSON/FILE", label, subject, public=public)
    if path.name.endswith(".npz") and extractor.kind != "table":
        return _check_named(load_table(path), "y and subjects", label, subject, public=public)
    options: dict[str, Any] = {"columns": extractor.columns}
    if extractor.kind == "table":
        options = {"schema": get_table_schema(extractor)}
    elif extractor.kind == "text":
        columns = extractor.columns or ["text"]
        if len(columns) > 1:
            raise InvalidInput("The 'columns' option must name one column of texts.")
        options = {"text": columns[0]}
    form = get_csv_form(path, extractor, public=public)
    with add_file_to_errors(path, public=public):
        dataset = load_table(path, label, subject, targets=targets, form=form, **options)
    if public and "schema" in options:
        warn_of_undeclared_categories(path, dataset.features, options["schema"])
    return dataset


def _check_named(
    dataset: Dataset, names: str, label: str | None, subject: str | None, *, public: bool
) -> Dataset:
    """Return the data set of a folder or npz file, which has the labels and subjects asked for.

    `names`: its names of labels and subjects, for the message. `label`, `subject`: options of the
    command. Raises InvalidInput if private records lack what an option names: without subjects,
    every row would have a budget of its own.
    """
    if not public:
        for option, column in (("label", dataset.labels), ("subject", dataset.subjects)):
            if (label if option == "label" else subject) is not None and column is None:
                raise InvalidInput(
                    f"The '{option}' option names a column of a table. In this file or folder they "
                    f"are called {names}, and it has none."
                )
    return dataset


def get_csv_form(path: Path, extractor: StoreExtractor, *, public: bool) -> CsvForm:
    """Return the format of a CSV file: detected if it is public, and else as in the schema."""
    from vicinal.datasets.tables import detect_csv_format
    from vicinal.features.csv_form import CsvForm

    declared = get_table_schema(extractor).file if extractor.kind == "table" else CsvForm()
    return detect_csv_format(path, base_format=declared) if public else declared


def read_labelled(
    path: Path, extractor: StoreExtractor, target: Target, label: str | None, subject: str | None
) -> tuple[Dataset, AnyArray]:
    """Return the records of a private file, and their class names (n,) or target values (n, p)."""
    dataset = read_records(path, extractor, label, subject, list_target_columns(target, label))
    return dataset, get_labels(dataset)


def get_labels(dataset: Dataset) -> AnyArray:
    """Return the labels or target values of records. Raises InvalidInput if there are none."""
    if dataset.labels is None:
        raise InvalidInput(
            "The 'label' option must name the column of labels (npz: y; folder: LABEL/FILE)."
        )
    return dataset.labels


def list_target_columns(target: Target, label: str | None) -> list[str]:
    """Return the columns of target numbers or of several labels; empty for classes.

    Raises InvalidInput if a column `label` of class names is given too.
    """
    if target.is_class_vote:
        return []
    if label is not None:
        raise InvalidInput(
            "The 'label' option is for classes. Numbers and several labels are read from the "
            "columns that bear their names."
        )
    return [str(name) for name in target.names]


def read_queries(
    path: Path, extractor: StoreExtractor, id_column: str | None, answer_columns: Sequence[str]
) -> tuple[dict[str, Any], Dataset]:
    """Return the column to copy in front of the answers, by its name, and the queries.

    - `id_column`: column of the file to copy. For None, the names of a folder's files are copied,
      and nothing (an empty mapping) if the queries are not in a folder.
    - `answer_columns`: names of the columns of answers; InvalidInput if the copied one has one.
    """
    from vicinal.datasets.tables import normalize_column_name, read_table

    if id_column is None:
        if path.is_dir() and FILE_COLUMN in answer_columns:
            raise InvalidInput(
                f"The answers have a column {FILE_COLUMN!r}, in which the names of files would "
                "stand. Pass images as an npz file and texts as a table, without names."
            )
        dataset = read_records(path, extractor, public=True)
        return ({} if dataset.names is None else {FILE_COLUMN: list(dataset.names)}), dataset
    name = normalize_column_name(id_column)
    if name in answer_columns:
        raise InvalidInput(
            f"The 'id' option must not be {name!r}, because the answers have a column of that "
            "name. Rename the column in the file of queries."
        )
    if path.is_dir() or path.name.endswith(".npz"):
        raise InvalidInput("The 'id' option needs a table: folders and npz files have no columns.")
    table = read_table(path, get_csv_form(path, extractor, public=True))
    if name not in table.column_names:
        raise InvalidInput(f"{path} has no column {name!r}, which --id names.")
    if extractor.kind == "columns" and extractor.columns is None:
        feature_columns = [column for column in table.column_names if column != name]
        extractor = replace(extractor, columns=feature_columns)
    dataset = read_records(path, extractor, public=True)
    rows: Any = dataset.features
    schema_columns = extractor.options.get("schema", {}).get("columns", {})
    if extractor.kind == "table" and name not in schema_columns:
        dataset = replace(dataset, features=rows.drop_columns([name]))
    return {name: table[name]}, dataset
