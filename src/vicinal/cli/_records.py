"""How the commands of a store read records, queries and the public reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.datasets import Dataset
    from vicinal.store import StoreExtractor
    from vicinal.targets import Target


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Put the file's name in front of what is wrong with it."""
    try:
        yield
    except InvalidInput as error:
        if str(path) in str(error):
            raise
        raise InvalidInput(f"{path}: {error}") from None


def read_records(
    path: Path,
    extractor: StoreExtractor,
    label: str | None,
    subject: str | None,
    targets: Sequence[str] = (),
) -> Dataset:
    """Return the records of a file, raw, as the store's extractor takes them.

    `targets` are columns of numbers that records carry in place of a label.
    """
    from vicinal.datasets import load_images, load_table

    if path.is_dir():
        return load_images(path)
    if path.name.endswith(".npz") and extractor.kind != "table":
        return load_table(path)
    with naming(path):
        if extractor.kind == "table":
            return load_table(path, label, subject, named=True, targets=targets)
        if extractor.kind == "text":
            column = extractor.columns[0] if extractor.columns else "text"
            return load_table(path, label, subject, text=column, targets=targets)
        return load_table(path, label, subject, extractor.columns, targets=targets)


def target_columns(target: Target, label: str | None) -> list[str]:
    """Return the columns that numbers or several labels stand in; none where there are classes.

    Raises InvalidInput with a column of labels where each target is a column of its own.
    """
    if target.voted:
        return []
    if label is not None:
        raise InvalidInput(
            "The 'label' option is for classes. Numbers and several labels stand in columns of "
            "their own names."
        )
    return [str(name) for name in target.names]


def read_queries(
    path: Path, extractor: StoreExtractor, name: str | None
) -> tuple[dict[str, Any], Dataset]:
    """Return what goes before the answers (a column, or names of images), and the queries."""
    from vicinal.datasets import read_table

    if name is None:
        dataset = read_records(path, extractor, None, None)
        return ({} if dataset.names is None else {"file": list(dataset.names)}), dataset
    if path.is_dir() or path.name.endswith(".npz"):
        raise InvalidInput("The 'id' option names a column; images and npz files have none.")
    table = read_table(path)
    if name not in table.column_names:
        raise InvalidInput(f"{path} has no column {name!r}, which --id names.")
    if extractor.kind == "columns" and extractor.columns is None:
        others = [column for column in table.column_names if column != name]
        extractor = replace(extractor, columns=others)
    dataset = read_records(path, extractor, None, None)
    rows: Any = dataset.features
    declared = extractor.options.get("schema", {}).get("columns", {})
    if extractor.kind == "table" and name not in declared:
        dataset = replace(dataset, features=rows.drop_columns([name]))
    return {name: table[name]}, dataset


def identified(first: dict[str, Any]) -> dict[str, Any]:
    """Return what goes before the answers, as JSON has it."""
    listed = {name: getattr(c, "to_pylist", lambda c=c: c)() for name, c in first.items()}
    return {"ids": [_plain(value) for value in next(iter(listed.values()))]} if listed else {}


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | None) else str(value)
