"""`vicinal keywords`: what private texts near a question share, in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.cli._options import Audience, Json, Quiet, StorePath
from vicinal.cli._output import as_json, warnings_said
from vicinal.cli._records import read_queries
from vicinal.cli._shards import AcceptLoss, opened_at
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.store import KeywordReply
    from vicinal.store._base_store import BaseStore


def keywords(
    store: StorePath,
    questions: Annotated[
        list[str] | None, typer.Argument(help="Questions, where the store takes texts.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="File of questions instead: .parquet, .csv, .csv.gz, .npz.")
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("-m", help="Words to show, at most the plan's --answer-words.", min=1),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights", help="Show each word's noisy weight, and the noise.")
    ] = False,
    audience: Audience = "default",
    analyst: Annotated[str, typer.Option(help="Whose quota.")] = "anyone",
    key: Annotated[str | None, typer.Option(help="Idempotency key: sent again, free.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Show the noisy keywords of the texts near each question; new questions spend budgets."""
    from vicinal.store import KeywordReply

    with warnings_said(), opened_at(store, accept_loss=accept_loss) as opened:
        shown = _words_shown(opened, audience, most)
        queries = _queries(opened, questions or [], data)
        reply = opened.predict(queries, audience=audience, analyst=analyst, idempotency_key=key)
    assert isinstance(reply, KeywordReply)  # noqa: S101 (the store holds words)
    if json:
        typer.echo(as_json(_cut(reply.to_dict(), shown)))
        return
    for i, question in enumerate(questions or map(str, range(1, len(reply.labels) + 1))):
        typer.echo(f"{question}: {', '.join(_words(reply, i, shown, weights=weights))}")
    if not quiet:
        typer.echo(
            f"Noise {reply.noise:.2f}: words of a weight below {3 * reply.noise:.2f} say nothing. "
            f"{reply.charged} new, {reply.left} answers left.",
            err=True,
        )


def _words_shown(store: BaseStore, audience: str, most: int | None) -> int:
    """Return how many words to show, checked before anything is asked."""
    from vicinal.store._targets import WORDS

    if store.schema.target.kind != WORDS:
        raise InvalidInput("The store must hold words: make one with --vocabulary or --keywords.")
    if audience not in store.audiences:
        raise InvalidInput("The 'audience' parameter must be an audience of this store.")
    n_keywords = int(store.facts()["audiences"][audience]["plan"]["n_keywords"])
    if most is not None and most > n_keywords:
        raise InvalidInput(
            f"The 'm' option must be at most {n_keywords}, the words that an answer of this plan "
            "keeps."
        )
    return n_keywords if most is None else most


def _queries(store: BaseStore, questions: list[str], data: Path | None) -> Any:
    extractor = store.schema.extractor
    if bool(questions) == (data is not None):
        raise InvalidInput("Give either questions or --data.")
    if data is not None:
        return read_queries(data, extractor, None)[1].features
    if extractor.takes != "texts":
        raise InvalidInput(f"The store takes {extractor.takes}: give a file of them with --data.")
    return questions


def _words(reply: KeywordReply, i: int, shown: int, *, weights: bool) -> list[str]:
    assert reply.votes is not None  # noqa: S101 (sums of words leave)
    words: list[str] = reply.labels[i, :shown].tolist()
    if not weights:
        return words
    return [f"{word} {weight:.2f}" for word, weight in zip(words, reply.votes[i], strict=False)]


def _cut(reply: dict[str, Any], shown: int) -> dict[str, Any]:
    rows = {name: [row[:shown] for row in reply[name]] for name in ("keywords", "weights")}
    return {**reply, **rows}
