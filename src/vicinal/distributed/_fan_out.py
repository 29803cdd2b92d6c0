"""Sending tasks to shards and gathering their results, with retries and a deadline."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vicinal.distributed._membership import ShardRecord
from vicinal.distributed.messages import Message, Task
from vicinal.distributed.transports import LocalShard, Transport
from vicinal.errors import ShardDamaged, ShardMissing, ShardUnreachable, StoreDamaged, VicinalError
from vicinal.ledger.ledger import Ledger

_RETRY_SECONDS = 0.02  # seconds between two attempts to reach a shard

_MAX_SERIAL_SHARDS = 4
"""Largest number of shards in this process that are called one after the other, without threads."""

_MAX_THREADS = 16  # largest number of shards in this process that are called at the same time


@dataclass(slots=True, eq=False)
class ShardClient:
    """The coordinator's access to one shard: creates its messages and checks its answers."""

    transport: Transport
    record: ShardRecord  # identity and last seen state of the shard
    cluster: str  # id of the cluster, in hexadecimal digits
    ledger: Ledger  # of the coordinator; messages carry its clock
    read_only: bool = False  # whether the coordinator only reads

    def create_message(self, task: Task) -> Message:
        """Return a message with a task for this shard and its expected identity and state."""
        record = self.record
        return Message(
            task,
            self.cluster,
            record.identity,
            record.number,
            self.ledger.clock,
            record.epochs,
            record.state,
            self.read_only,
        )

    def send(self, task: Task) -> Callable[[float], Any]:
        """Send a task without waiting, and return a function that waits for its result.

        The function takes the seconds to wait at most. It raises the shard's refusal,
        ShardUnreachable, or StoreOutdated if another shard has answered.
        """
        message = self.create_message(task)
        reply = self.transport.send(message)

        def wait_for_result(seconds: float) -> Any:
            """Return the task's result, after verifying the shard's state in the answer."""
            answer = reply(seconds)
            self.record.accept_links(message.last_seen, answer.links)
            return answer.value

        return wait_for_result


def send_tasks(
    shards: Mapping[int, ShardClient] | Sequence[ShardClient], tasks: Mapping[int, Task]
) -> dict[int, Callable[[float], Any]]:
    """Send shards their tasks; return the results of :meth:`ShardClient.send`, by shard number.

    Shards in this process have finished when this returns. If there are more than
    `_MAX_SERIAL_SHARDS` of them, threads call them, so that their disks write at the same time.

    `shards`: clients, by number of the shard. `tasks`: the task of each called shard, by number.
    """
    clients = [shards[number] for number in tasks]
    is_local = all(isinstance(client.transport, LocalShard) for client in clients)
    if not is_local or len(tasks) <= _MAX_SERIAL_SHARDS:
        return {number: shards[number].send(task) for number, task in tasks.items()}
    with ThreadPoolExecutor(_MAX_THREADS) as pool:
        waiting = pool.map(ShardClient.send, clients, tasks.values())
        return dict(zip(tasks, waiting, strict=True))


def gather_results(
    shards: Mapping[int, ShardClient],
    task: Task | Callable[[int], Task],
    deadline: float,
    *,
    work_seconds: float = 0.0,
) -> dict[int, Any]:
    """Send shards a task, wait for their results, and return them by number of the shard.

    The task is sent again to unreachable shards until the deadline. That is safe, as a shard
    charges a block once and makes a change once.

    - `shards`: clients of the shards that are called, by number of the shard.
    - `task`: one task for all shards, or a function from a shard's number to its task.
    - `deadline`: seconds to wait for all shards together.
    - `work_seconds`: seconds that a reachable shard may work on its task, even past the deadline.

    Raises ShardMissing with the missing shards and the reasons; ShardDamaged, without waiting for
    the deadline, if a shard is damaged.
    """
    end = time.monotonic() + deadline
    tasks = {number: task(number) if callable(task) else task for number in shards}
    pending = send_tasks(shards, tasks)
    answered: dict[int, Any] = {}
    errors: dict[int, VicinalError] = {}
    while pending:
        is_last_attempt = end - time.monotonic() <= _RETRY_SECONDS
        for number, wait_for_result in pending.items():
            try:
                answered[number] = wait_for_result(max(end - time.monotonic(), work_seconds))
            except (ShardUnreachable, StoreDamaged) as error:
                # A timeout has no message: an earlier error of the shard is more informative.
                errors[number] = error if str(error) else errors.get(number, error)
        if is_last_attempt:
            break
        # All unreachable shards are called again together, so that none waits for another one.
        # A damaged shard is not called again: waiting does not repair it.
        retried = [
            number
            for number in pending
            if not (number in answered or isinstance(errors[number], StoreDamaged))
        ]
        if retried:
            time.sleep(_RETRY_SECONDS)
        pending = send_tasks(shards, {number: tasks[number] for number in retried})
    missing = {number: error for number, error in errors.items() if number not in answered}
    if missing:
        raise _create_missing_error(missing, len(shards), deadline)
    return {number: answered[number] for number in shards}


def _create_missing_error(
    missing: Mapping[int, VicinalError], n_shards: int, deadline: float
) -> ShardMissing:
    """Return an error that names the missing shards and the reasons, in public words.

    `missing`: the last error of each missing shard, by its number. `n_shards`: number of shards
    that were called. `deadline`: seconds of waiting.
    """
    reasons = " ".join(
        f"Shard {number}: {str(missing[number]) or 'No answer in time.'}"
        for number in sorted(missing)
    )
    if any(isinstance(error, StoreDamaged) for error in missing.values()):
        return ShardDamaged(f"{reasons} Nothing is answered until that is repaired.")
    return ShardMissing(
        f"{len(missing)} of {n_shards} shards did not come back within {deadline:g} seconds, "
        f"so nothing was answered. Try again once they are back. {reasons}"
    )
