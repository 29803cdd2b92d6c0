"""`vicinal shard`, and how commands open a store or a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli._options import Json, StorePath
from vicinal.cli._output import Yes, as_json, confirm
from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.distributed import Coordinator, MissingShardPolicy, RayCluster
    from vicinal.store import Store, StoreExtractor

Ray = Annotated[
    str | None,
    typer.Option(
        help="Run a cluster's shards on Ray: auto (the engine that runs here), its address, or "
        "local (start one). Default: in this process."
    ),
]
ShardSeconds = Annotated[
    float,
    typer.Option(
        "--shard-s",
        min=0.01,
        help="Seconds that a block waits for a cluster's shards; the first, also for their start.",
    ),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Spend every budget, as charges are not known.")
]

_LOCAL = "local"
_MEMORY = 256 << 20
"""Bytes of the object store of an engine that is started here: it holds a few blocks."""


def shard(
    store: StorePath,
    out: Annotated[Path, typer.Option(help="A new folder for the cluster.")],
    shards: Annotated[int, typer.Option(help="How many.")] = 2,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Spread a store over shards; the store retires, as no budget may exist twice."""
    from vicinal.distributed import split

    confirm(f"{store} becomes a cluster at {out}, and never answers again itself.", yes=yes)
    split(store, out, shards)
    if json:
        typer.echo(as_json({"cluster": str(out), "shards": shards}))
    else:
        typer.echo(f"{out} answers now, and {store} no more. Back the cluster up, then delete it.")


@contextmanager
def opened_at(
    path: Path,
    ray: str | None = None,
    policy: MissingShardPolicy | None = None,
    *,
    accept_loss: bool = False,
) -> Iterator[Store | Coordinator]:
    """Open the store or the cluster that lies at `path`, and close it at the end."""
    from vicinal.distributed import Coordinator, is_cluster, local_transports
    from vicinal.store import Store

    if not is_cluster(path):
        if ray is not None:
            raise InvalidInput(
                f"The 'ray' option needs a cluster, and {path} is none. Make one of a store with: "
                "vicinal shard"
            )
        with Store.open(path, accept_loss=accept_loss) as store:
            yield store
        return
    with ExitStack() as resources:
        connect = (
            local_transports if ray is None else resources.enter_context(engine_at(ray)).transports
        )
        cluster = Coordinator.open(path, connect, policy, accept_loss=accept_loss)
        yield resources.enter_context(cluster)


@contextmanager
def engine_at(ray: str) -> Iterator[RayCluster]:
    """Start, or reach, a Ray engine, and leave it at the end."""
    from vicinal.distributed import RayCluster

    engine = RayCluster(None, memory=_MEMORY) if ray == _LOCAL else RayCluster(ray)
    try:
        yield engine
    finally:
        engine.stop()


@contextmanager
def spread(extractor: StoreExtractor, ray: str | None) -> Iterator[StoreExtractor]:
    """Have an extractor work on a Ray engine, if one is asked for."""
    if ray is None:
        yield extractor
        return
    from vicinal.distributed import SpreadExtractor

    with engine_at(ray) as engine:
        yield SpreadExtractor(
            extractor.kind, extractor.options, extractor.public_map, extractor.columns, engine
        )
