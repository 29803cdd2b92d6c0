"""Shards in processes of their own, to be killed: a transport without Ray."""

import ctypes
import os
import pickle
import signal
import socket
import struct
import time
from contextlib import suppress
from select import select
from threading import Lock

from vicinal.distributed.transports import LocalShard
from vicinal.errors import ShardUnreachable, VicinalError

_DEATH_OF_PARENT = 1
_SOON = 0.02
_LENGTH = struct.Struct("!Q")


class ShardProcess:
    """The way to a shard in a forked process, which dies with this one.

    A process that died is started again, with the next message, as Ray would do.
    """

    def __init__(self, path, in_child=lambda: None):
        self._path, self._in_child = path, in_child
        self._replies = []
        self._sending, self._receiving = Lock(), Lock()
        self._start()

    def _start(self):
        self._socket, theirs = socket.socketpair()
        self._begun = b""
        self.pid = os.fork()
        if self.pid == 0:
            ctypes.CDLL(None).prctl(_DEATH_OF_PARENT, signal.SIGKILL)
            _close_all_but(theirs.fileno())
            self._in_child()
            with suppress(EOFError, OSError):
                _serve(theirs, self._path)
            os._exit(0)
        theirs.close()

    def send(self, message):
        reply = _Reply(self)
        with self._sending:  # replies come in the order of messages, whichever thread sends them
            self._replies.append(reply)
            try:
                _write(self._socket, message)
            except OSError:
                self.fail()
                self.close()
                self._start()
        return reply

    def receive(self, seconds):
        """Give the oldest reply what has come; return whether anything has.

        Not for long: another thread may wait for another reply.
        """
        with self._receiving:
            return self._received(max(0, min(seconds, _SOON)))

    def _received(self, seconds):
        try:
            if not select([self._socket], [], [], seconds)[0]:
                return False
            part = self._socket.recv(1 << 20)
        except (OSError, ValueError):
            part = b""
        self._begun += part
        if not part:
            self.fail()
        while len(self._begun) >= (end := _end(self._begun)):
            self._replies.pop(0).value = pickle.loads(self._begun[_LENGTH.size : end])
            self._begun = self._begun[end:]
        return True

    def fail(self):
        """Tell all that wait that the process is gone."""
        for one in self._replies:
            one.value = ShardUnreachable("Its process is gone.")
        self._replies.clear()

    def close(self):
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class _Reply:
    def __init__(self, way):
        self._way, self.value = way, None

    def __call__(self, seconds):
        until = time.monotonic() + seconds
        while self.value is None:
            if not self._way.receive(until - time.monotonic()) and time.monotonic() >= until:
                raise ShardUnreachable
        if isinstance(self.value, VicinalError):
            raise self.value
        return self.value[0]


def _close_all_but(descriptor):
    """Let go of the coordinator's locks, and of the ways to other shards."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 4096)


def _serve(way, path):
    shard = LocalShard(path)
    while True:
        message = _read(way)
        try:
            answer = (shard.handle(message),)
        except VicinalError as error:
            answer = error
        _write(way, answer)


def _end(content):
    """Return where the first message ends; one byte too far if that is not known yet."""
    if len(content) < _LENGTH.size:
        return _LENGTH.size
    return _LENGTH.size + _LENGTH.unpack(content[: _LENGTH.size])[0]


def _write(way, value):
    content = pickle.dumps(value)
    way.sendall(_LENGTH.pack(len(content)) + content)


def _read(way):
    (size,) = _LENGTH.unpack(_exactly(way, _LENGTH.size))
    return pickle.loads(_exactly(way, size))


def _exactly(way, size):
    content = b""
    while len(content) < size:
        part = way.recv(size - len(content))
        if not part:
            raise EOFError
        content += part
    return content
