"""Two worlds over HTTP: a made-up store behind a real service, what replies and times give away.

One store holds many universes; chance puts the subject at risk into half of them. Every universe is
asked in a random order over one connection, and the attacker sees votes and response times. What
one request leaves behind falls on both worlds alike.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.audit import IndKNNAudit, rate_bounds
from vicinal.audit._universes import People, Universes, universes
from vicinal.mechanisms import public_draws
from vicinal.serving import KeyFile, ServiceSettings
from vicinal.serving._app import create_app
from vicinal.serving._server import server_of
from vicinal.store import Store

Floats = npt.NDArray[np.float64]

_STANDARD_ERRORS = 1.96
_HEAD = ("pace", "mu claim", "mu lower", "AUC of times", "95 % interval", "median ms", "universes")


@dataclass(frozen=True)
class Seen:
    """What an attacker got of one service.

    Attributes
    ----------
    pace_ms : float
        The response interval of the service; 0 for none.
    claim, lower : float
        The claimed mu, and the lower bound that the votes prove, at the confidence asked for.
    auc, low, high : float
        How likely a request about somebody who is there takes longer than one about somebody who
        is not, with an interval of 95 %; .5 if times tell nothing.
    median_ms : float
        Of all response times.
    universes : int
        In both worlds together.
    """

    pace_ms: float
    claim: float
    lower: float
    auc: float
    low: float
    high: float
    median_ms: float
    universes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def attacked(
    audit: IndKNNAudit, pace_ms: float, count: int, rounds: int, stores: int, confidence: float
) -> Seen:
    """Serve made-up stores one after the other, ask every universe, and say what was seen.

    Parameters
    ----------
    audit : IndKNNAudit
        The classifier; its audiences get votes.
    pace_ms : float
        The response interval; 0 for none.
    count : int
        Universes of a store, at most 500.
    rounds : int
        How often every universe is asked; votes are judged by the first, times by the mean.
    stores : int
        One after the other, with coins of their own.
    confidence : float
        Of the lower bound on mu.
    """
    found = [_asked(audit, pace_ms, count, rounds) for _ in range(stores)]
    coins, scores, times = (np.concatenate(parts) for parts in zip(*found, strict=True))
    rates = rate_bounds(scores[coins], scores[~coins], confidence, lambda rates: rates.mu)
    return Seen(
        pace_ms, audit.budget_mu("votes"), rates.mu, *auc_interval(times[coins], times[~coins]),
        1e3 * float(np.median(times)), len(coins),
    )  # fmt: skip


def auc_interval(present: Floats, absent: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve, and an interval of 95 % around it.

    Source: DeLong, DeLong & Clarke-Pearson 1988, from the placements of each value.
    """
    order = np.sort(absent)
    below, upto = (np.searchsorted(order, present, side) for side in ("left", "right"))
    placed = (below + upto) / (2 * len(absent))
    order = np.sort(present)
    below, upto = (np.searchsorted(order, absent, side) for side in ("left", "right"))
    others = 1 - (below + upto) / (2 * len(present))
    area = float(placed.mean())
    error = np.sqrt(placed.var(ddof=1) / len(placed) + others.var(ddof=1) / len(others))
    reach = _STANDARD_ERRORS * float(error)
    return area, area - reach, area + reach


def _asked(
    audit: IndKNNAudit, pace_ms: float, count: int, rounds: int
) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
    """Return who is there, votes for the subject's class in its first round, and mean times."""
    world = universes([(1.0, 0)] * audit.records, [(0.9, 1)], count=count)
    coins = public_draws().permutation(count) < count // 2
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(Path(folder) / "store", audit, _chosen(world, coins), world, pace_ms) as (
            port,
            key,
        ),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        _ask(connection, key, -world.queries[0])  # far from all: it warms up both sides
        scores, times = np.zeros(count), np.zeros((rounds, count))
        for number in range(rounds):
            for place in public_draws().permutation(count).tolist():
                votes, times[number, place] = _ask(connection, key, world.queries[place])
                if number == 0:
                    scores[place] = votes[0]
        connection.close()
    return coins, scores, times.mean(axis=0)


def _chosen(world: Universes, coins: npt.NDArray[np.bool_]) -> People:
    """Return everybody, with the subjects at risk whose coin came up."""
    victims = world.victims
    there = coins[victims.subjects]
    return world.others.and_(People(victims.X[there], victims.y[there], victims.subjects[there]))


def _ask(connection: http.client.HTTPConnection, key: str, query: Floats) -> tuple[Any, float]:
    """Return the votes on one query, and the seconds until they were read."""
    body = json.dumps({"vectors": [query.tolist()]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    start = time.perf_counter()
    connection.request("POST", "/v1/predict", body, headers)
    reply = connection.getresponse()
    content = reply.read()
    took = time.perf_counter() - start
    if reply.status != http.client.OK:
        raise RuntimeError(f"The service answered with status {reply.status}.")
    return json.loads(content)["votes"][0], took


@contextmanager
def _served(
    folder: Path, audit: IndKNNAudit, people: People, world: Universes, pace_ms: float
) -> Iterator[tuple[int, str]]:
    """Serve a new store of these people at a free port of this machine; yield port and key."""
    parameters = audit.parameters(world.count, "votes")
    settings = ServiceSettings(rate=0, response_interval_ms=pace_ms)
    with Store.init(
        folder, people.X, people.y, people.subjects, public=world.public, **parameters
    ) as store:
        key = KeyFile(folder).add("attacker", "analyst", "default")
        server = server_of(create_app(store, folder, settings), "127.0.0.1", 0)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                if not thread.is_alive():
                    raise RuntimeError("The service did not start.")
                time.sleep(0.01)
            yield server.servers[0].sockets[0].getsockname()[1], key
        finally:
            server.should_exit = True
            thread.join()


def text_table(found: list[Seen]) -> str:
    """Return a line a service."""
    lines = ["".join(f"{cell:>16}" for cell in _HEAD)]
    for seen in found:
        pace = f"{seen.pace_ms:g} ms" if seen.pace_ms else "off"
        cells = (
            pace, f"{seen.claim:.3f}", f"{seen.lower:.3f}", f"{seen.auc:.3f}",
            f"{seen.low:.3f} to {seen.high:.3f}", f"{seen.median_ms:.2f}", str(seen.universes),
        )  # fmt: skip
        lines.append("".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)
