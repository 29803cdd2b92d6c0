"""Shards in processes of their own, to be killed: a transport without Ray."""

import ctypes
import os
import signal
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe

from vicinal.distributed.transports import LocalShard
from vicinal.errors import ShardUnreachable, VicinalError

_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl


class ShardProcess:
    """The way to a shard in a forked process, which dies with this one.

    A process that died is started again, with the next message, as Ray would do. `in_child` is
    called in every process before its first message.
    """

    def __init__(self, path, in_child=lambda: None):
        self._path = path
        self._in_child = in_child
        self._pending = []  # replies to be received, the oldest first
        self._start()

    def _start(self):
        self._connection, end_of_child = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
            # The locks of the coordinator, and the connections of other shards.
            os.closerange(3, end_of_child.fileno())
            os.closerange(end_of_child.fileno() + 1, 4096)
            self._in_child()
            with suppress(EOFError, OSError):
                _serve(end_of_child, self._path)
            os._exit(0)
        end_of_child.close()

    def send(self, message):
        reply = Future()
        self._pending.append(reply)
        try:
            self._connection.send(message)
        except OSError:
            self._fail_pending()
            self.close()
            self._start()
        return partial(self._wait_for, reply)

    def _wait_for(self, reply, seconds):
        end = time.monotonic() + seconds
        while not reply.done():
            if not self._connection.poll(max(0, end - time.monotonic())):
                raise ShardUnreachable
            try:
                answer = self._connection.recv()
            except (EOFError, OSError):
                self._fail_pending()
            else:
                self._pending.pop(0).set_result(answer)
        answer = reply.result()
        if isinstance(answer, VicinalError):
            raise answer
        return answer

    def _fail_pending(self):
        for reply in self._pending:
            reply.set_result(ShardUnreachable("Its process is gone."))
        self._pending.clear()

    def close(self):
        self._connection.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(connection, path):
    shard = LocalShard(path)
    while True:
        message = connection.recv()
        try:
            answer = shard.handle(message)
        except VicinalError as error:
            answer = error
        connection.send(answer)
