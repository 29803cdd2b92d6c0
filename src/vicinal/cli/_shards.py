"""`vicinal shard` and the copies of shards; and how commands open a store or a cluster."""

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
    from vicinal.distributed._cluster_opening import Connect
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
TakeoverSeconds = Annotated[
    float | None,
    typer.Option(
        "--takeover-s",
        min=0.01,
        help="Seconds that one of two copies of a shard may be away, while the other one answers, "
        "before it is given up for good; below --shard-s. Default: a person decides.",
    ),
]
AcceptLoss = Annotated[
    bool, typer.Option("--accept-loss", help="Spend every budget, as charges are not known.")
]

Cluster = Annotated[Path, typer.Argument(metavar="CLUSTER", help="Folder of the cluster.")]
Shard = Annotated[int, typer.Option(help="Number of the shard, from 0.")]

_LOCAL = "local"
_MEMORY = 256 << 20
"""Bytes of the object store of an engine that is started here: it holds a few blocks."""


def shard(
    store: StorePath,
    out: Annotated[Path, typer.Option(help="A new folder for the cluster.")],
    shards: Annotated[int, typer.Option(help="How many.")] = 2,
    copies: Annotated[int, typer.Option(help="Copies of each shard: 1 or 2.")] = 1,
    json: Json = False,
    yes: Yes = False,
) -> None:
    """Spread a store over shards; the store retires, as no budget may exist twice."""
    from vicinal.distributed import split

    confirm(f"{store} becomes a cluster at {out}, and never answers again itself.", yes=yes)
    split(store, out, shards, copies=copies)
    if json:
        typer.echo(as_json({"cluster": str(out), "shards": shards, "copies": copies}))
    else:
        typer.echo(f"{out} answers now, and {store} no more. Back the cluster up, then delete it.")


def promote_copy(
    cluster: Cluster,
    shard: Shard,
    copy: Annotated[int, typer.Option(help="The copy to go on with: 1 or 2.")],
    ray: Ray = None,
    yes: Yes = False,
) -> None:
    """Go on with one copy of a shard and give the other up; refused if it misses a charge."""
    from vicinal.distributed import local_transports
    from vicinal.distributed import promote_copy as promote

    confirm(f"Goes on with copy {copy} of shard {shard} alone, for good.", yes=yes)
    with ExitStack() as resources:
        connect: Connect = local_transports
        if ray is not None:
            connect = resources.enter_context(engine_at(ray)).transports
        promote(cluster, shard, copy, connect)
    typer.echo(
        f"Shard {shard} goes on with copy {copy}. Delete what is left of the other one: people who "
        "are erased from now on are still in it. Make a new one with: vicinal copy-shard"
    )


def copy_shard(cluster: Cluster, shard: Shard) -> None:
    """Write a second copy of a shard that has one."""
    from vicinal.distributed import copy_shard as write

    write(cluster, shard)
    typer.echo(f"Shard {shard} has two copies now.")


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
        connect: Connect = local_transports
        if ray is not None:
            connect = resources.enter_context(engine_at(ray)).transports
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
