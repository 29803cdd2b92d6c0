"""`vicinal serve STORE`: answer over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.shards import Ray, opened_at

StorePath = Annotated[
    Path, typer.Argument(metavar="STORE", help="The folder of the store, or of the cluster.")
]


def serve(
    store: StorePath,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.", min=0, max=65535)] = 8000,
    wait_ms: Annotated[float, typer.Option(help="How long a block waits for others.")] = 2.0,
    pace_ms: Annotated[
        float, typer.Option(help="Answers leave at multiples of this only; 0: at once.")
    ] = 0.0,
    rate: Annotated[float, typer.Option(help="Requests a second of one key; 0: no limit.")] = 100.0,
    burst: Annotated[float, typer.Option(help="Requests that a key may send at once.")] = 200.0,
    body_bytes: Annotated[int, typer.Option(help="Longest request body.")] = 8 << 20,
    ray: Ray = None,
    shard_s: Annotated[float, typer.Option(help="How long a block waits for a shard.")] = 30.0,
    answer_without: Annotated[
        bool, typer.Option("--answer-without", help="Then answer without it, and say so. Public.")
    ] = False,
) -> None:
    """Answer over HTTP, with keys; the console is at /console."""
    from vicinal.distributed import Absence
    from vicinal.serving.server import serve as run
    from vicinal.serving.settings import Settings

    settings = Settings(
        wait_ms=wait_ms, pace_ms=pace_ms, rate=rate, burst=burst, body_bytes=body_bytes
    )
    typer.echo(f"http://{host}:{port}/console", err=True)
    absence = Absence(shard_s, answer_without)
    run(opened_at(store, ray, absence), store, host, port, settings)
