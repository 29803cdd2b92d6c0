"""`vicinal serve STORE`: answer over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli._shards import AcceptLoss, Ray, ShardSeconds, opened_at

StorePath = Annotated[
    Path, typer.Argument(metavar="STORE", help="The folder of the store, or of the cluster.")
]


def serve(
    store: StorePath,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0: any that is free.", min=0, max=65535)
    ] = 8000,
    wait_ms: Annotated[float, typer.Option(help="How long a block waits for others.")] = 2.0,
    response_interval_ms: Annotated[
        float, typer.Option(help="Answers leave at multiples of this only; 0: at once.")
    ] = 0.0,
    rate: Annotated[float, typer.Option(help="Requests a second of one key; 0: no limit.")] = 100.0,
    burst: Annotated[float, typer.Option(help="Requests that a key may send at once.")] = 200.0,
    connections: Annotated[
        int | None,
        typer.Option(help="Connections at once. Default: what the limit of open files allows."),
    ] = None,
    body_bytes: Annotated[
        int | None,
        typer.Option(help="Longest request body. Default: what a full request can need."),
    ] = None,
    ray: Ray = None,
    shard_s: ShardSeconds = 30.0,
    answer_without: Annotated[
        bool, typer.Option("--answer-without", help="Then answer without it, and say so. Public.")
    ] = False,
    accept_loss: AcceptLoss = False,
) -> None:
    """Answer over HTTP, with keys; the console is at /console."""
    from vicinal.distributed import MissingShardPolicy
    from vicinal.serving import ServiceSettings
    from vicinal.serving import serve as run

    settings = ServiceSettings(
        connections=connections,
        wait_ms=wait_ms,
        response_interval_ms=response_interval_ms,
        rate=rate,
        burst=burst,
        body_bytes=body_bytes,
    )
    policy = MissingShardPolicy(shard_s, answer_without)
    opened = opened_at(store, ray, policy, accept_loss=accept_loss)
    run(opened, store, host, port, settings, lambda url: typer.echo(f"{url}/console", err=True))
