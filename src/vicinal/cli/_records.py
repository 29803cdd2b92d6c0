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
    from vicinal.store._targets import TargetSchema


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
    documents: str | None = None,
) -> Dataset:
    """Return the records of a file, raw, as the store's extractor takes them.

    `targets` are columns of numbers, `documents` one of texts, that records carry in place of a
    label.
    """
    from vicinal.datasets import load_images, load_table

    if path.is_dir():
        return load_images(path)
    if path.name.endswith(".npz") and extractor.kind != "table":
        return load_table(path)
    carried: dict[str, Any] = {"targets": targets, "documents": documents}
    with naming(path):
        if extractor.kind == "table":
            return load_table(path, label, subject, named=True, **carried)
        if extractor.kind == "text":
            return load_table(path, label, subject, text=text_column(extractor), **carried)
        return load_table(path, label, subject, extractor.columns, **carried)


def text_column(extractor: StoreExtractor) -> str:
    """Return the column of texts that an extractor of texts takes."""
    return extractor.columns[0] if extractor.columns else "text"


def document_column(
    target: TargetSchema, extractor: StoreExtractor, text: str | None
) -> str | None:
    """Return the column of texts whose words records carry; None where they carry no words.

    Raises InvalidInput if it is not known, or named where records carry something else.
    """
    from vicinal.store._targets import WORDS

    if target.kind != WORDS:
        if text is not None:
            raise InvalidInput("The 'text' option is for stores of words, with a vocabulary.")
        return None
    if text is None and extractor.kind != "text":
        raise InvalidInput("The 'text' option must name the column of texts.")
    return text_column(extractor) if text is None else text


def vocabulary_of(public: Path | None, column: str, n_words: int) -> dict[str, float]:
    """Return the vocabulary that public texts give."""
    from vicinal.datasets import load_table
    from vicinal.predictors import public_vocabulary

    if public is None:
        raise InvalidInput("The 'keywords' option needs --public, a file of public texts.")
    with naming(public):
        return public_vocabulary(load_table(public, text=column).features, n_words)


def target_columns(target: TargetSchema, label: str | None) -> list[str]:
    """Return the columns that numbers or several labels stand in; none where there are classes.

    Raises InvalidInput with a column of labels where each target is a column of its own.
    """
    from vicinal.store._targets import CLASSES, WORDS

    if target.kind == CLASSES or (target.kind == WORDS and label is None):
        return []
    if label is not None:
        raise InvalidInput(
            "The 'label' option is for classes. Numbers and several labels stand in columns of "
            "their own names, and the column of texts is named by --text."
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
