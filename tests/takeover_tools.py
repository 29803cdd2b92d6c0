"""Ways to copies of shards that die, hang, lose messages or answer late, when a test says so."""

from __future__ import annotations

import time

from vicinal.distributed import local_transports
from vicinal.errors import ShardUnreachable, StoreDamaged

DEAD, HUNG, LATE, DAMAGED = "dead", "hung", "late", "damaged"
EVERY = (DEAD, HUNG, LATE, DAMAGED)


class Faulty:
    """The ways to all copies, of which those in `places` fail from when `how` is set.

    A dead copy cannot be reached; a hung one does not answer; a late one does what it is told, and
    its answer comes when the coordinator has stopped waiting; a damaged one says so.
    """

    def __init__(self, *places, kinds=None, messages=10**9):
        self.places, self.kinds, self.messages = places, kinds, messages
        self.how = None
        self.late = []
        self.abandoned = []

    def __call__(self, paths):
        ways = list(local_transports(paths))
        for place in self.places:
            ways[place] = _Way(ways[place], self, place)
        return ways

    def concerns(self, message):
        """Tell whether a message meets the fault; each that does is counted."""
        kind = type(getattr(message, "task", message)).__name__
        if self.how is None or (self.kinds and kind not in self.kinds) or not self.messages:
            return False
        self.messages -= 1
        return True


class _Way:
    def __init__(self, way, faulty, place):
        self.way, self.faulty, self.place = way, faulty, place

    def send(self, message):
        faulty = self.faulty
        if not faulty.concerns(message):
            return self.way.send(message)
        if faulty.how == LATE:
            faulty.late.append(self.way.send(message))
        return _Failed(faulty.how)

    def close(self):
        self.way.close()

    def abandon(self):
        self.faulty.abandoned.append(self.place)
        self.way.abandon()

    def sum_node(self, shards):
        return self.way.sum_node(shards)


class _Failed:
    """A message that is not answered."""

    def __init__(self, how):
        self.how = how

    def result(self, seconds):
        if self.how == DEAD:
            raise ShardUnreachable("Its process is gone.")
        if self.how == DAMAGED:
            raise StoreDamaged("It is damaged.")
        time.sleep(seconds)
        raise ShardUnreachable
