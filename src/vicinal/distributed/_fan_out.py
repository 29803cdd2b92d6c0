"""One task for every shard, and what comes back: waiting, sending again, and giving up."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vicinal.distributed._membership import ShardRecord
from vicinal.distributed.messages import Message, Task
from vicinal.distributed.transports import LocalTransport, Transport
from vicinal.errors import ShardDamaged, ShardMissing, ShardUnreachable, StoreDamaged, VicinalError
from vicinal.ledger.ledger import Ledger

_PAUSE = 0.02
"""Seconds between two attempts at a shard that cannot be reached."""

_FEW, _AT_ONCE = 4, 16
"""Shards of this process that are asked one after the other; and side by side, at most."""


@dataclass(slots=True, eq=False)
class ShardClient:
    """One shard as the coordinator asks it: messages and answers are checked on both sides.

    - `transport`: carries its messages.
    - `record`: what is known of it.
    - `cluster`: the cluster's id.
    - `ledger`: the coordinator's, of which the clock is told.
    - `reading`: whether the coordinator only reads.
    """

    transport: Transport
    record: ShardRecord
    cluster: str
    ledger: Ledger
    reading: bool = False

    def message(self, task: Task) -> Message:
        """Return a task in a message for this shard as it was seen last."""
        one = self.record
        place = self.cluster, one.identity, one.number, self.ledger.clock
        return Message(task, *place, one.epochs, one.state, self.reading)

    def send(self, task: Task) -> Callable[[float], Any]:
        """Send a task, without waiting; what is returned waits for what comes of it.

        Called with seconds, it raises what the shard refuses; ShardUnreachable; or StoreOutdated if
        another shard has answered.
        """
        message = self.message(task)
        reply = self.transport.send(message)

        def received(seconds: float) -> Any:
            answer = reply(seconds)
            self.record.accept(message.known, answer.links)
            return answer.value

        return received


def send_all(
    shards: Mapping[int, ShardClient] | Sequence[ShardClient], tasks: Mapping[int, Task]
) -> dict[int, Callable[[float], Any]]:
    """Send every shard its task; return what waits for each.

    Those of this process are done then. If they are many, they wait for the disk side by side.
    """

    def send(number: int) -> Callable[[float], Any]:
        return shards[number].send(tasks[number])

    local = all(isinstance(shards[number].transport, LocalTransport) for number in tasks)
    if not local or len(tasks) <= _FEW:
        return {number: send(number) for number in tasks}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(tasks, pool.map(send, tasks), strict=True))


def gather(
    shards: Mapping[int, ShardClient],
    task: Task | Callable[[int], Task],
    deadline: float,
    *,
    work: float = 0.0,
) -> dict[int, Any]:
    """Send shards a task and return what came back, by shard.

    A task may be sent again without harm: a shard charges a block once and makes a change once.

    - `task`: the same for all, or what returns that of a shard.
    - `deadline`: seconds to wait for all of them.
    - `work`: seconds that a shard within reach may take, if that is longer.

    Raises ShardMissing if a shard is missing. It says which, and why. ShardDamaged if one is
    damaged, for which nobody waits.
    """
    until = time.monotonic() + deadline
    tasks = {number: task(number) if callable(task) else task for number in shards}
    pending = send_all(shards, tasks)
    answered: dict[int, Any] = {}
    errors: dict[int, VicinalError] = {}
    while pending:
        last = until - time.monotonic() <= _PAUSE
        for number, received in pending.items():
            try:
                answered[number] = received(max(until - time.monotonic(), work))
            except (ShardUnreachable, StoreDamaged) as error:
                # One that only took too long says nothing: what it said before says more.
                errors[number] = error if str(error) else errors.get(number, error)
        if last:
            break
        # All that cannot be reached are asked again together, so that none waits for the end of
        # another one. A damaged one would be no better.
        again = [n for n in pending if not (n in answered or isinstance(errors[n], StoreDamaged))]
        if again:
            time.sleep(_PAUSE)
        pending = send_all(shards, {number: tasks[number] for number in again})
    missing = {number: error for number, error in errors.items() if number not in answered}
    if missing:
        raise _refusal(missing, len(shards), deadline)
    return {number: answered[number] for number in shards}


def _refusal(missing: Mapping[int, VicinalError], shards: int, deadline: float) -> ShardMissing:
    """Return in public words which shards are missing, and why."""
    why = " ".join(
        f"Shard {number}: {str(missing[number]) or 'No answer in time.'}"
        for number in sorted(missing)
    )
    if any(isinstance(error, StoreDamaged) for error in missing.values()):
        return ShardDamaged(f"{why} Nothing is answered until that is repaired.")
    return ShardMissing(
        f"{len(missing)} of {shards} shards did not come back within {deadline:g} seconds, "
        f"so nothing was answered. Try again once they are back. {why}"
    )
