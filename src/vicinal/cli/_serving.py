"""`vicinal serve`, `keys` and `shard`: answer over HTTP, who may ask, and from how many shards."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from vicinal import distributed, serving
from vicinal.cli._main import group_of
from vicinal.cli._options import AcceptLoss, Json, Ray, ShardSeconds, StorePath, Yes
from vicinal.cli._output import as_json, confirm
from vicinal.cli._records import opened_at

AnyStorePath = Annotated[
    Path, Argument(metavar="STORE", help="The folder of the store, or of the cluster.")
]


def serve(
    store: AnyStorePath,
    host: Annotated[str, Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, Option(help="Port to listen at; 0: any that is free.", min=0, max=65535)
    ] = 8000,
    wait_ms: Annotated[float, Option(help="How long a block waits for others.")] = 2.0,
    response_interval_ms: Annotated[
        float, Option(help="Answers leave at multiples of this only; 0: at once.")
    ] = 0.0,
    rate: Annotated[float, Option(help="Requests a second of one key; 0: no limit.")] = 100.0,
    burst: Annotated[float, Option(help="Requests that a key may send at once.")] = 200.0,
    connections: Annotated[
        int | None,
        Option(help="Connections at once. Default: what the limit of open files allows."),
    ] = None,
    body_bytes: Annotated[
        int | None, Option(help="Longest request body. Default: what a full request can need.")
    ] = None,
    ray: Ray = None,
    shard_s: ShardSeconds = 30.0,
    answer_without: Annotated[
        bool, Option("--answer-without", help="Then answer without it, and say so. Public.")
    ] = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Answer over HTTP, with keys; the console is at /console."""
    settings = serving.ServiceSettings(
        connections=connections, wait_ms=wait_ms, response_interval_ms=response_interval_ms,
        rate=rate, burst=burst, body_bytes=body_bytes,
    )  # fmt: skip
    policy = distributed.MissingShardPolicy(shard_s, answer_without)
    opened = opened_at(store, ray, policy, accept_loss=accept_loss)
    serving.serve(opened, store, host, port, settings, lambda url: echo(f"{url}/console", err=True))


keys = group_of("Keys of the service: add, list, revoke.")


@keys.command()
def add(
    store: StorePath,
    name: Annotated[str, Argument(help="Who it is for; whose quota it uses.")],
    role: Annotated[str, Option(help="analyst, curator or monitor.")] = "analyst",
    audience: Annotated[str, Option(help="Whose budgets it spends.")] = "default",
) -> None:
    """Make a key and print it: this once, it is kept nowhere."""
    echo(serving.KeyFile(store).add(name, role, audience))


@keys.command("list")
def list_keys(store: StorePath, json: Json = False) -> None:
    """Show ids, names and roles of all keys; never a key."""
    found = serving.KeyFile(store).all()
    if json:
        shown = [{k: v for k, v in asdict(key).items() if k != "digest"} for key in found]
        echo(as_json({"keys": shown}))
        return
    for key in found:
        state = "active" if key.revoked is None else f"revoked {key.revoked}"
        echo(f"{key.id}  {key.role:<8}  {key.audience}  {key.name}  {key.created}  {state}")


@keys.command()
def revoke(
    store: StorePath,
    key_id: Annotated[str, Argument(metavar="ID", help="As `keys list` shows it.")],
) -> None:
    """Let a key in no more, at once."""
    serving.KeyFile(store).revoke(key_id)


def shard(
    store: StorePath,
    out: Annotated[Path, Option(help="A new folder for the cluster.")],
    shards: Annotated[int, Option(help="How many.")] = 2,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Spread a store over shards; the store retires, as no budget may exist twice."""
    confirm(f"{store} becomes a cluster at {out}, and never answers again itself.", yes=yes)
    distributed.split(store, out, shards)
    text = f"{out} answers now, and {store} no more. Back the cluster up, then delete it."
    echo(as_json({"cluster": str(out), "shards": shards}) if json else text)
