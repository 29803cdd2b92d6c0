"""`vicinal receipt`: signed proof of an erasure or a guarantee, and its verification."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._group import group_of
from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import as_json, read_json, write_file
from vicinal.cli._subjects import listed_ids
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.store import Store

app = group_of("Sign and verify receipts of erasures and guarantees.")

Key = Annotated[Path, typer.Option(help="The installation's key file, mode 0600.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write the receipt to this file.")]
Subject = Annotated[list[str] | None, typer.Option(help="An id; repeat for more.")]
Subjects = Annotated[Path | None, typer.Option(help="File with one id a line.")]


@app.command()
def key(path: Annotated[Path, typer.Argument(help="A new file.")]) -> None:
    """Make the key of this installation; print its public half, to be given to who verifies."""
    from vicinal.store import SigningKey

    typer.echo(SigningKey.create(path).public)


@app.command()
def erasure(
    store: StorePath, key: Key, subject: Subject = None, subjects: Subjects = None, out: Out = None
) -> None:
    """Sign that people are erased from a store; the receipt does not name them."""
    from vicinal.store import SigningKey, erasure_receipt

    signer = SigningKey(key)
    with _opened(store) as opened:
        receipt = erasure_receipt(
            opened._parts, listed_ids(subject, subjects), signer, models_kept=opened.models_stay
        )
    _give(receipt, out)


@app.command()
def guarantee(store: StorePath, key: Key, audience: str = "default", out: Out = None) -> None:
    """Sign what an audience's answers guarantee."""
    from vicinal.store import SigningKey, guarantee_receipt

    signer = SigningKey(key)
    with _opened(store) as opened:
        stated = opened.guarantee(audience).to_dict()
        receipt = guarantee_receipt(opened._parts, audience, stated, signer)
    _give(receipt, out)


@app.command()
def verify(
    receipt: Annotated[Path, typer.Argument(metavar="RECEIPT.json", help="A receipt.")],
    public_key: Annotated[str, typer.Option(help="Who must have signed it, as `key` printed.")],
    store: Annotated[Path | None, typer.Option(help="Say whether it is in force there.")] = None,
    subject: Subject = None,
    subjects: Subjects = None,
    json: Json = False,
) -> None:
    """Check a receipt's signature; with --store, that it is in force: nobody came back."""
    from vicinal.store import check_receipt, faults_of_receipt

    content = check_receipt(read_json(receipt, "receipt"), public_key)
    faults: list[str] = []
    if store is not None:
        with _opened(store) as opened:
            faults = faults_of_receipt(opened._parts, content, listed_ids(subject, subjects))
    if json:
        typer.echo(as_json({"receipt": content, "in_force": None if store is None else not faults}))
    if faults:
        raise InvalidInput(" ".join(faults))
    if not json:
        typer.echo("The signature is good." + ("" if store is None else " It is in force."))


@contextmanager
def _opened(path: Path) -> Iterator[Store]:
    from vicinal.distributed import is_cluster
    from vicinal.store import Store

    if is_cluster(path):
        raise InvalidInput(f"{path} is a cluster. Receipts are for stores in one folder.")
    with Store.open(path) as store:
        yield store


def _give(receipt: dict[str, Any], out: Path | None) -> None:
    if out is None:
        typer.echo(as_json(receipt))
    else:
        write_file(out, as_json(receipt) + "\n")
