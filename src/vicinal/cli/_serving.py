"""`vicinal serve`, `keys` and `shard`: the HTTP service, its keys, and clusters of shards.

Shared options: `store`, folder of a store or cluster; `shard_timeout_s`, seconds to wait for a
cluster's shards; `accept_lost_charges`, open a store that has lost its newest charges, and count
all its budgets as spent; `yes`, do not ask; `json`, print one JSON object.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from vicinal.cli.main import create_command_group
from vicinal.cli.options import AcceptLoss, Json, ShardSeconds, StorePath, Yes
from vicinal.cli.output import as_json, confirm, echo
from vicinal.cli.records import open_store


def serve(
    store: StorePath,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="Port; 0 for any free one.", min=0, max=65535)] = 8000,
    wait_ms: Annotated[float, Option(help="Time in which queries join into a batch.")] = 2.0,
    response_interval_ms: Annotated[
        float, Option(help="Send answers only at multiples of this time; 0 for at once.")
    ] = 0.0,
    rate: Annotated[float, Option(help="Requests per second and key; 0 for no limit.")] = 100.0,
    burst: Annotated[float, Option(help="Requests that a key may send at once.")] = 200.0,
    connections: Annotated[
        int | None, Option(help="Most open connections. Default: as the open-file limit allows.")
    ] = None,
    body_bytes: Annotated[
        int | None, Option(help="Longest request body. Default: enough for any valid request.")
    ] = None,
    ray: Annotated[
        str | None,
        Option(help="Run a cluster's shards on Ray: address, auto (found), or local (started)."),
    ] = None,
    shard_timeout_s: ShardSeconds = 30.0,
    accept_lost_charges: AcceptLoss = False,
) -> None:
    """Answer queries over HTTP, for callers with keys. The page /console is for browsers."""
    from vicinal.serving import server
    from vicinal.serving.settings import ServiceSettings

    settings = ServiceSettings(
        connections=connections,
        wait_ms=wait_ms,
        response_interval_ms=response_interval_ms,
        rate=rate,
        burst=burst,
        body_bytes=body_bytes,
    )
    opened = open_store(store, ray, shard_timeout_s, accept_lost_charges=accept_lost_charges)
    server.serve(opened, store, host, port, settings, lambda url: echo(f"{url}/console", err=True))


keys = create_command_group("Add, list or revoke keys of the service.")


@keys.command()
def add(
    store: StorePath,
    name: Annotated[str, Argument(help="Analyst who gets the key and whose quota it uses.")],
    role: Annotated[str, Option(help="analyst, curator or monitor.")] = "analyst",
    audience: Annotated[str, Option(help="Audience whose budgets it charges.")] = "default",
) -> None:
    """Create a key and print it once. Only its hash is stored, so it cannot be printed again."""
    from vicinal.serving.keys import KeyFile

    KeyFile(store).add(name, role, audience, show=echo)


@keys.command("list")
def list_keys(store: StorePath, json: Json = False) -> None:
    """List the ids, names and roles of all keys, but never the keys themselves."""
    from vicinal.serving.keys import KeyFile

    keys = KeyFile(store).load_keys()
    if json:
        rows = [asdict(key) for key in keys]
        for row in rows:
            del row["digest"]
        echo(as_json({"keys": rows}))
        return
    for key in keys:
        state = "active" if key.revoked is None else f"revoked {key.revoked}"
        echo(f"{key.id}  {key.role:<8}  {key.audience}  {key.name}  {key.created}  {state}")


@keys.command()
def revoke(
    store: StorePath,
    key_id: Annotated[str, Argument(metavar="ID", help="Id of the key, as in `keys list`.")],
) -> None:
    """Revoke a key at once."""
    from vicinal.serving.keys import KeyFile

    KeyFile(store).revoke(key_id)


def shard(
    store: StorePath,
    out: Annotated[Path, Option(help="New folder for the cluster.")],
    n_shards: Annotated[int, Option("--shards", help="Number of shards.")] = 2,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Split a store into shards. The store itself never answers again."""
    from vicinal.distributed.splitting import split

    confirm(
        f"This splits {store} into a cluster at {out}. {store} will never answer again.", yes=yes
    )
    split(store, out, n_shards)
    text = (
        f"{out} answers from now on. Back it up, then delete {store}, which will not answer again."
    )
    echo(as_json({"cluster": str(out), "shards": n_shards}) if json else text)
