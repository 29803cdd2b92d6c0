"""Floods against a service of its own: `python -m benchmarks.attacks_service [--full]`.

Each attack runs `vicinal serve` as its users do, in a child process on the loopback, floods it, and
says in one line what happened. :data:`ATTACKS` lists them for the table of all attacks. Sizes are
those of a test; `--full` has those of the audit.
"""

import argparse
import contextlib
import http.client
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.store import Store

D, CLASSES = 16, 4
SCALE = 1
"""How much larger than in a test; `--full` sets 16."""


@dataclass
class Target:
    """A service under attack."""

    process: subprocess.Popen
    port: int
    key: str
    folder: Path

    def call(self, path: str, body: bytes | None = None, name: str = "") -> int:
        """Return the status of a request with the analyst's key; 0 if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.key}"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Idempotency-Key": name} if name else {}
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            reply = connection.getresponse()
            reply.read()
            return reply.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def memory(self) -> float:
        """Return the largest resident size so far, MiB (Linux)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def processor(self) -> float:
        """Return the processor's seconds so far (Linux)."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / 100

    def size(self) -> int:
        """Return the bytes of the store's folder."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


@contextmanager
def target(files: int | None = None, *options: str) -> Iterator[Target]:
    """Run a service on a small new store; with a limit of open files, if there is one."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        key = _new_store(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        command = [sys.executable, "-m", "vicinal", "serve", str(folder), "--port", str(port)]
        limit = [] if files is None else ["bash", "-c", f'ulimit -n {files}; exec "$@"', "limit"]
        process = subprocess.Popen(
            [*limit, *command, "--rate", "0", *options], stderr=subprocess.DEVNULL
        )
        try:
            found = Target(process, port, key, folder)
            _until_it_answers(found)
            yield found
        finally:
            process.terminate()
            process.wait(60)


def _new_store(folder: Path) -> str:
    rng = np.random.default_rng(0)
    X, y = rng.random((400, D)), rng.integers(0, CLASSES, 400)
    plan = {"n_queries": 5000, "n_neighbors": 40, "noise_multiplier": 5.0, "n_records": 400}
    public = rng.random((100, D))
    Store.init(folder, X, y, classes=range(CLASSES), public=public, **plan).close()
    command = [sys.executable, "-m", "vicinal", "keys", "add", str(folder), "anna"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _until_it_answers(found: Target) -> None:
    for _ in range(1200):
        assert found.process.poll() is None, "the service did not start"
        if found.call("/healthz") == 200:
            assert found.call("/v1/predict", _queries(1, 1)) == 200
            return
        time.sleep(0.1)
    raise AssertionError("the service does not answer")


def _queries(count: int, seed: int) -> bytes:
    rows = np.random.default_rng(seed).random((count, D)).round(5)
    return json.dumps({"vectors": rows.tolist()}).encode()


def _send_until_closed(port: int, begin: bytes, part: bytes, times: int) -> tuple[int, bytes]:
    """Send a beginning and then parts until nobody takes them; return bytes sent, and what came."""
    sent, found = 0, b""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(begin)
            for _ in range(times):
                connection.sendall(part)
                sent += len(part)
        connection.settimeout(0.5)
        with contextlib.suppress(OSError):
            found = connection.recv(1000)
    return sent, found.partition(b"\r\n")[0]


# ---------------------------------------------------------------- attacks


def endless_headers() -> str:
    """One connection sends headers without end."""
    with target() as at:
        before = at.memory()
        header = b"X-Flood: " + b"a" * 65_000 + b"\r\n"
        sent, reply = _send_until_closed(
            at.port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n", header, 300 * SCALE
        )
        return (
            f"{sent / 2**20:.1f} of {300 * SCALE * len(header) / 2**20:.0f} MiB taken "
            f"({reply.decode() or 'no reply'}); memory +{at.memory() - before:.0f} MiB"
        )


def long_url() -> str:
    """One request has a URL of megabytes."""
    with target() as at:
        before = at.processor()
        sent, reply = _send_until_closed(at.port, b"GET /", b"a" * 65_536, 90 * SCALE)
        time.sleep(0.5)
        return (
            f"{sent / 2**20:.1f} of {90 * SCALE / 16:.0f} MiB taken "
            f"({reply.decode() or 'no reply'}); {at.processor() - before:.2f} s of processor"
        )


def half_open_connections() -> str:
    """Connections send half a head and then nothing."""
    with target() as at:
        begun = time.monotonic()
        half = [socket.create_connection(("127.0.0.1", at.port)) for _ in range(20)]
        for connection in half:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
            connection.settimeout(20)
        with contextlib.suppress(OSError):
            if half[0].recv(10):
                return "answered half a request"
            return f"closed after {time.monotonic() - begun:.0f} s"
        waited = time.monotonic() - begun
        return f"open after {waited:.0f} s" if waited >= 20 else f"closed after {waited:.0f} s"


def too_many_connections() -> str:
    """1,100 idle connections at a limit of 1,024 open files, while an analyst asks."""
    with target(1024) as at:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        idle: list[socket.socket] = []
        try:
            for _ in range(1100):
                with contextlib.suppress(OSError):
                    idle.append(socket.create_connection(("127.0.0.1", at.port), timeout=1))
            asked = [at.call("/v1/predict", _queries(1, 100 + i)) for i in range(20)]
            health = at.call("/healthz")
        finally:
            for connection in idle:
                connection.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        after = at.call("/v1/predict", _queries(1, 999))
        return (
            f"{asked.count(200)} of 20 queries answered meanwhile, health {health}; "
            f"afterwards a query gets {after}, health {at.call('/healthz')}"
        )


def heavy_json() -> str:
    """Four clients with a key send 8 MiB of small numbers and empty lists; health is timed."""
    bodies = [b'{"vectors":[' + unit * ((8 << 20) // len(unit) - 9) for unit in (b"0,", b"[],")]
    bodies = [body + b"0]}" for body in bodies]
    with target(None, "--body-bytes", str(8 << 20)) as at:
        quiet = _health_times(at, 20)
        ending, statuses = threading.Event(), []

        def flood(body: bytes) -> None:
            for _ in range(4 * SCALE):
                if ending.is_set():
                    return
                statuses.append(at.call("/v1/predict", body))

        threads = [threading.Thread(target=flood, args=(bodies[i % 2],)) for i in range(4)]
        for thread in threads:
            thread.start()
        busy = _health_times(at, 20)
        ending.set()
        for thread in threads:
            thread.join()
        return (
            f"health p50 {1e3 * statistics.median(quiet):.1f} -> "
            f"{1e3 * statistics.median(busy):.1f} ms, at most {1e3 * max(busy):.0f} ms; "
            f"bodies get {'/'.join(map(str, sorted(set(statuses))))}"
        )


def _health_times(at: Target, count: int) -> list[float]:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        at.call("/healthz")
        found.append(time.perf_counter() - begun)
        time.sleep(0.02)
    return found


def replays_under_new_keys() -> str:
    """An analyst repeats answered queries under ever new idempotency keys."""
    with target() as at:
        queries = _queries(256, 7)
        assert at.call("/v1/predict", queries) == 200
        before = at.size()
        count = 100 * SCALE
        statuses = {at.call("/v1/predict", queries, f"again-{i}") for i in range(count)}
        return (
            f"{count} replays of 256 answers ({'/'.join(map(str, statuses))}): the store grows by "
            f"{max(0, at.size() - before) / count:,.0f} bytes a replay"
        )


def url_before_port() -> str:
    """The port is taken; perhaps a URL is printed all the same."""
    with tempfile.TemporaryDirectory() as temporary, socket.create_server(("127.0.0.1", 0)) as used:
        _new_store(Path(temporary) / "store")
        port = str(used.getsockname()[1])
        command = [sys.executable, "-m", "vicinal", "serve", f"{temporary}/store", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        printed = "a URL is printed" if "/console" in done.stderr else "no URL is printed"
        return f"{printed}, exit code {done.returncode}"


ATTACKS: list[tuple[str, Callable[[], str]]] = [
    ("HTTP: headers without end", endless_headers),
    ("HTTP: a URL of megabytes", long_url),
    ("HTTP: half-open connections", half_open_connections),
    ("HTTP: more connections than open files", too_many_connections),
    ("HTTP: 8 MiB of small values in JSON", heavy_json),
    ("HTTP: replays under new idempotency keys", replays_under_new_keys),
    ("HTTP: a port that is taken", url_before_port),
]
"""Name of each attack, and a function that carries it out and says what happened."""


def main() -> None:
    """Carry out all attacks and print what happened."""
    global SCALE  # noqa: PLW0603 (one knob of a script)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks_service")
    parser.add_argument("--full", action="store_true", help="sizes of the audit")
    SCALE = 16 if parser.parse_args().full else 1
    for name, attack in ATTACKS:
        try:
            verdict = attack()
        except AssertionError as error:
            verdict = f"the attack did not run: {error}"
        print(f"{name:<44}{verdict}", flush=True)


if __name__ == "__main__":
    main()
