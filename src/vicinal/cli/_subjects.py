"""The command `erase`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli._options import StorePath
from vicinal.cli._output import Yes, confirm
from vicinal.cli._shards import AcceptLoss, opened_at
from vicinal.errors import InvalidInput, StorageFailed

if TYPE_CHECKING:
    from vicinal._checks import SubjectId
    from vicinal.store import Presence

NOBODY = 2
"""Exit code of an erasure whose ids were never there: the list is most likely a wrong one."""

MODEL_STAYS = (
    "A private model was trained before: its weights stay as they are, like answers given, within "
    "the guarantee. `vicinal refresh` trains it again where the plan has refreshes."
)


def erase(
    store: StorePath,
    subject: Annotated[list[str] | None, typer.Option(help="An id; repeat for more.")] = None,
    subjects: Annotated[Path | None, typer.Option(help="File with one id a line.")] = None,
    curator: Annotated[
        bool, typer.Option("--curator", help="Say how many records went, too. Private.")
    ] = False,
    accept_loss: AcceptLoss = False,
    yes: Yes = False,
) -> None:
    """Erase people from every file, for good; answers given stay, and so do trained models.

    Ends with 2 if not one of the ids was ever in the store.
    """
    ids = listed_ids(subject, subjects)
    if not ids:
        raise InvalidInput("The 'subject' option must be given: at least one id.")
    confirm(f"Erases {_ids(len(ids))} and all their records, for good.", yes=yes)
    with opened_at(store, accept_loss=accept_loss) as opened:
        before = opened.presence(ids)
        n_erased = opened.erase(ids)
        verification, trained = opened.verify(ids), opened.models_stay
    if not verification:
        raise StorageFailed(" ".join(verification.faults))
    typer.echo(_outcome_text(len(ids), before))
    if trained:
        typer.echo(MODEL_STAYS)
    if curator:
        typer.echo(f"Private: {n_erased} records.")
    if not before.enrolled and not before.erased:
        raise typer.Exit(NOBODY)


def listed_ids(single: list[str] | None, listed: Path | None) -> list[SubjectId]:
    """Return the ids of an option and of a file, each in its one form."""
    from vicinal import _checks
    from vicinal.datasets import read_ids

    ids = _checks.subject_ids("subject", single or [])
    return [*ids, *([] if listed is None else read_ids(listed))]


def _outcome_text(read: int, before: Presence) -> str:
    """Return what an erasure did, for whoever gave the ids."""
    if not before.enrolled and not before.erased:
        done = "Nobody was erased: none of these ids was ever in the store."
    elif not before.enrolled:
        done = "Nobody was erased: none of these ids is in the store any more."
    else:
        done = "Erased."
    return (
        f"{done} Read {_ids(read)}. Private: {before.enrolled} enrolled until now, "
        f"{before.erased} erased before, {before.unknown} never there."
    )


def _ids(count: int) -> str:
    return "1 id" if count == 1 else f"{count} ids"
