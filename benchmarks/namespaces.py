"""Several machines on one: network namespaces joined by a wire that holds every packet back.

Each namespace has a TUN device of its own and reaches the others through it alone. This process
holds the other ends: what comes out of one device goes into that of its destination when the delay
is over. It is `tc netem delay` for kernels that have none. It costs a thread that wakes up for
every packet; :meth:`Machines.echo` measures what a byte really takes. It needs Linux, root and
/dev/net/tun.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

_DEVICE = Path("/dev/net/tun")
_MAKE_TUN = 0x400454CA  # TUNSETIFF
_PACKETS_ALONE = 0x0001 | 0x1000  # IFF_TUN, IFF_NO_PI
_PACKET = 1 << 16
_WATCH = 0.1
"""Seconds after which a wire without packets looks whether it is to stop."""

_NAME = "vicinal-machine"

_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 7))
print("listening", flush=True)
caller, _ = server.accept()
caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while heard := caller.recv(1):
    caller.sendall(heard)
"""
_CALL = """
import socket, sys, time
caller = socket.create_connection((sys.argv[1], 7))
caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    caller.sendall(b"?")
    caller.recv(1)
    print(time.perf_counter() - start)
"""


def unavailable() -> str:
    """Return why this machine cannot have such namespaces, or "" if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "Network namespaces need Linux and root."
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return f"There is no {_DEVICE}."
    try:
        subprocess.run(["ip", "netns", "list"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return "The command `ip netns` does not work here."
    return ""


class Wire:
    """What joins the namespaces: passes packets on when the delay is over, in their order.

    Parameters
    ----------
    devices : mapping of str to int
        The open device of every address.

    Attributes
    ----------
    delay : float
        Seconds that a packet takes, one way. It may be changed while the wire is in use.
    passed : int
        How many packets it has passed on.
    """

    def __init__(self, devices: dict[str, int]) -> None:
        self.delay = 0.0
        self.passed = 0
        self._by_address = {socket.inet_aton(where): device for where, device in devices.items()}
        self._held: deque[tuple[float, bytes]] = deque()
        self._stopped = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Pass nothing on any more."""
        self._stopped = True
        self._thread.join()

    def _run(self) -> None:
        devices = list(self._by_address.values())
        while not self._stopped:
            wait = _WATCH if not self._held else max(0.0, self._held[0][0] - time.monotonic())
            for device in select.select(devices, [], [], wait)[0]:
                self._take(device)
            while self._held and self._held[0][0] <= time.monotonic():
                self._pass_on(self._held.popleft()[1])

    def _take(self, device: int) -> None:
        with suppress(BlockingIOError):
            while True:
                packet = os.read(device, _PACKET)
                self._held.append((time.monotonic() + self.delay, packet))

    def _pass_on(self, packet: bytes) -> None:
        """Pass a packet of IPv4 on to where it goes; a device that is full loses it, as one may."""
        device = self._by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
        if device is not None:
            with suppress(BlockingIOError):
                os.write(device, packet)
                self.passed += 1


class Machines:
    """Namespaces that are joined by a wire; see :func:`machines`.

    Parameters
    ----------
    names : sequence of str
        Of the namespaces.
    wire : Wire
        What joins them.
    """

    def __init__(self, names: Sequence[str], wire: Wire) -> None:
        self._names = names
        self.wire = wire

    def start(self, number: int, command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
        """Start a command on one of the machines."""
        inside = ["ip", "netns", "exec", self._names[number], *command]
        return subprocess.Popen(inside, text=True, **options)

    def echo(self, times: int = 50) -> float:
        """Return the seconds in which a byte goes from machine 0 to machine 1 and back; median."""
        there = [sys.executable, "-c", _ECHO, address(1)]
        with self.start(1, there, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline(), "the echo does not listen"
            here = [sys.executable, "-c", _CALL, address(1), str(times)]
            with self.start(0, here, stdout=subprocess.PIPE) as caller:
                told, _ = caller.communicate(timeout=60)
            server.wait(timeout=60)
        return statistics.median(float(line) for line in told.split())


@contextmanager
def machines(count: int) -> Iterator[Machines]:
    """Make namespaces and a wire; they and all processes in them end, also if this one is ended.

    What a run left behind that was killed outright is cleared away by the next.
    """
    _clear()
    names = [f"{_NAME}-{os.getpid()}-{number}" for number in range(count)]
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with ExitStack() as resources:
        resources.callback(signal.signal, signal.SIGTERM, before)
        devices = {}
        for number, name in enumerate(names):
            _ip("netns", "add", name)
            resources.callback(_end, name)
            devices[address(number)] = device = _device(f"vic{number}")
            resources.callback(os.close, device)
            _join(name, f"vic{number}", address(number))
        wire = Wire(devices)
        resources.callback(wire.stop)
        yield Machines(names, wire)


def address(number: int) -> str:
    """Return the address of a machine."""
    return f"10.213.0.{number + 1}"


def _device(name: str) -> int:
    device = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, _MAKE_TUN, struct.pack("16sH22x", name.encode(), _PACKETS_ALONE))
    return device


def _join(namespace: str, device: str, where: str) -> None:
    """Move a device into a namespace and give it an address; the open end stays here."""
    _ip("link", "set", device, "netns", namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")
    _ip("-n", namespace, "address", "add", f"{where}/24", "dev", device)
    _ip("-n", namespace, "link", "set", device, "up")


def _clear() -> None:
    """End namespaces whose maker is no more."""
    told = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for line in told.stdout.splitlines():
        name = line.split()[0]
        maker = name.removeprefix(_NAME + "-").partition("-")[0]
        if name.startswith(_NAME) and not Path("/proc", maker).exists():
            _end(name)


def _end(namespace: str) -> None:
    """End every process of a namespace, and the namespace."""
    pids = ["ip", "netns", "pids", namespace]
    found = subprocess.run(pids, check=False, capture_output=True, text=True)
    for process in found.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(process), signal.SIGKILL)
    _ip("netns", "delete", namespace)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
