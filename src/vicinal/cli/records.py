"""Opening of stores and clusters, and reading of labelled records and subject ids.

Files of records are tables, npz files or folders of images or texts. An `extractor` selects the
columns of features, or has the schema of the table. `label` and `subject` name the columns of
labels and of subject ids, `path` is the file or folder, and `target` is the store's: classes,
numbers or several labels. `accept_lost_charges` opens a store that has lost its newest charges, and
counts all its budgets as spent; `read_only` writes to no file.
"""

from __future__ import annotations

import io
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from vicinal.errors import InvalidInput, StoreInUse
from vicinal.store import input_files

if TYPE_CHECKING:
    from vicinal.arrays import AnyArray
    from vicinal.checks import SubjectId
    from vicinal.datasets.dataset import Dataset
    from vicinal.distributed.coordinator import Coordinator
    from vicinal.distributed.ray_cluster import RayCluster
    from vicinal.serving.local_socket import ServedStore
    from vicinal.store.base_store import BaseStore
    from vicinal.store.store import Store
    from vicinal.store.store_schema import StoreExtractor
    from vicinal.targets.target import Target

STREAM = "-"
"""Path that stands for standard input or output."""

NO_SUBJECT_NOTE = (
    "without --subject, every row counts as a subject of its own. A person with several rows is "
    "not protected as one subject"
)
"""Note without its full stop on records without subject ids."""

_ID_NAME = re.compile(
    r"(?<![^\W\d_])(ids?|u?uid|pid|mrn|seqn|subject|person|patient|participant|respondent|client"
    r"|customer|employee|member|user|student)(?![^\W\d_])",
    re.IGNORECASE,
)
"""Matches names of columns that may hold subject ids: one of these as a whole word."""

_CAMEL_CASE_BREAK = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])")
"""Matches the empty text before a capital that begins a word, as in patientId."""

_SUFFIX_OF_MAGIC = {b"PAR1": ".parquet", b"PK\x03\x04": ".npz", b"\x1f\x8b": ".csv.gz"}
_SIGNAL_EXIT = 128
"""Exit code of a program that a signal ends, without the signal's number, as in shells."""
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
    them in this process. `shard_timeout_s`: seconds to wait for shards. `http_request`: method and
    path by which a running service does the same as the command, and the role of the key; None if
    no request does. StoreInUse beside a running service names it.
    """
    from vicinal.distributed.coordinator import Coordinator
    from vicinal.distributed.folders import is_cluster
    from vicinal.distributed.transports import local_transports
    from vicinal.serving.local_socket import ServedStore
    from vicinal.store.store import Store

    try:
        with ExitStack() as resources:
            if is_cluster(path):
                connect = local_transports
                if ray is not None:
                    connect = resources.enter_context(connect_ray(ray)).transports
                opened: Store | Coordinator = Coordinator.open(
                    path,
                    connect,
                    shard_timeout_s,
                    accept_loss=accept_lost_charges,
                    read_only=read_only,
                )
            elif ray is None:
                opened = Store.open(path, accept_loss=accept_lost_charges, read_only=read_only)
            else:
                raise InvalidInput(
                    f"The 'ray' option needs a cluster, and {path} is not one. Turn a store into a "
                    "cluster with: vicinal shard"
                )
            resources.enter_context(opened)
            yield opened
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
    """Open the store or cluster at `path`, or connect to the service on this machine with it."""
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
    """Yield the Ray cluster at an address, or one started here ("local") and stopped on exit."""
    from vicinal.distributed.ray_cluster import RayCluster

    is_local = address == _LOCAL_RAY
    engine = RayCluster(None, memory=_LOCAL_RAY_BYTES) if is_local else RayCluster(address)
    try:
        yield engine
    finally:
        engine.stop()


def collect_subject_ids(ids: list[str] | None, id_file: Path | None) -> list[SubjectId]:
    """Return the subject `ids` given one by one, then those in `id_file`, which has one a line."""
    from vicinal import checks
    from vicinal.datasets.id_lists import read_ids

    listed_ids = [] if id_file is None else read_ids(id_file)
    return [*checks.check_subject_ids("subject", ids or []), *listed_ids]


@contextmanager
def provide_input_path(data: str) -> Iterator[Path]:
    """Yield the path `data`; for "-", that of a temporary file with the data of standard input."""
    from vicinal.datasets.id_lists import read_to_end

    if data != STREAM:
        yield Path(data)
        return
    with _exit_on_termination(), tempfile.TemporaryDirectory() as folder:
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
def _exit_on_termination() -> Iterator[None]:
    """Exit through Python at SIGTERM in the with-block, so that temporary files are removed."""

    def exit_program(number: int, _: object) -> NoReturn:
        """Exit with the code of a program that the signal `number` has ended."""
        sys.exit(_SIGNAL_EXIT + number)

    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not is_default or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, exit_program)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def read_labelled(
    path: Path, extractor: StoreExtractor, target: Target, label: str | None, subject: str | None
) -> tuple[Dataset, AnyArray]:
    """Return the records of a private file, and their class names (n,) or target values (n, p)."""
    dataset = input_files.read_records(
        path, extractor, label, subject, list_target_columns(target, label)
    )
    return dataset, require_labels(dataset)


def describe_missing_subjects(extractor: StoreExtractor) -> str:
    """Return the note on records without subject ids, with a column that looks like ids.

    The public names of columns are from a schema, an option or the public file.
    """
    names: list[str] = list(extractor.columns or [])
    if extractor.kind == "table":
        schema = input_files.get_table_schema(extractor)
        names = [*schema.names, *schema.ignored, *schema.texts]
    note = f"{NO_SUBJECT_NOTE}, and no subject can be erased by id."
    for name in names:
        if _ID_NAME.search(_CAMEL_CASE_BREAK.sub("_", name)):
            return f"{note} The column {name!r} may hold ids: --subject {shlex.quote(name)}."
    return note


def require_labels(dataset: Dataset) -> AnyArray:
    """Return the labels or target values of `dataset`. Raises InvalidInput if there are none."""
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
