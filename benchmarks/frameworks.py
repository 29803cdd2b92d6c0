"""FastAPI and Starlette side by side, without a store: `python -m benchmarks.frameworks`.

The same two routes on both, each as its manual has it; uvicorn and httptools under both, on the
loopback. FastAPI is no dependency: install it for this (pip install fastapi).
docs/decisions/0047-service.md has the figures and the choice.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.serving import bodies, load, requests
from vicinal.serving._models import PredictRequest, PredictResponse

KEY = "bench"
MODULES = {"fastapi": "fastapi", "starlette": "starlette.applications"}
PACKAGES = {
    "fastapi": ("fastapi", "opentelemetry", "starlette"),
    "starlette": ("starlette",),
}


def fastapi_app():
    """Return the application as FastAPI's manual has it: a dependency, models, its OpenAPI."""
    from fastapi import Depends, FastAPI, HTTPException
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

    app = FastAPI()

    def admitted(sent: HTTPAuthorizationCredentials = Depends(HTTPBearer())) -> None:  # noqa: B008
        if sent.credentials != KEY:
            raise HTTPException(401)

    @app.post("/v1/predict", dependencies=[Depends(admitted)])
    async def predict(body: PredictRequest) -> PredictResponse:
        return PredictResponse(**answer(body))

    # With postponed annotations FastAPI looks the names up here.
    predict.__annotations__ = {"body": PredictRequest, "return": PredictResponse}
    return app


def starlette_app():
    """Return the application as the service has it: the key, then the body, then its model."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def predict(request):
        if request.headers.get("authorization") != f"Bearer {KEY}":
            raise HTTPException(401)
        return JSONResponse(answer(PredictRequest.model_validate_json(await request.body())))

    return Starlette(routes=[Route("/v1/predict", predict, methods=["POST"])])


def answer(body: PredictRequest) -> dict:
    """Return what takes no time."""
    size = len(np.array(body.vectors))
    votes = [[0.5] * 10] * size
    return {
        "labels": [1] * size, "votes": votes, "confidence": [1.0] * size, "charged": 0, "left": 1
    }  # fmt: skip


@contextmanager
def running(name: str) -> Iterator[int]:
    """Run one of them in a process of its own, and yield its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.frameworks", "--serve", name, "--port", str(port)]
    process = subprocess.Popen(command)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def key_first(port: int) -> bool:
    """Tell whether a request with a wrong key is refused before its body has come."""
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer wrong\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(head)
        try:
            return b" 401 " in connection.recv(1000)
        except TimeoutError:
            return False


def import_ms(module: str) -> float:
    """Return how long a module takes to import in a new process, of three times the median."""
    code = f"import time; t=time.perf_counter(); import {module}; print(time.perf_counter()-t)"
    return 1e3 * statistics.median(
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    )


def package_mb(name: str) -> float:
    """Return what a package takes on the disk, MiB, without caches."""
    from pathlib import Path

    (place,) = importlib.util.find_spec(name).submodule_search_locations
    files = (path for path in Path(place).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sum(path.stat().st_size for path in files) / 2**20


def main() -> None:
    """Print the table, or run one of the two."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks")
    parser.add_argument("--serve", choices=PACKAGES)
    parser.add_argument("--port", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.serve:
        import uvicorn

        app = {"fastapi": fastapi_app, "starlette": starlette_app}[chosen.serve]()
        uvicorn.run(app, port=chosen.port, log_level="error", http="httptools")
        return
    works = {"1 query": (1, 800, 16), "256 queries": (256, 24, 4)}
    first: dict[str, bool] = {}
    times: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for _ in range(chosen.rounds):  # in turn, so that a machine that slows down slows both
        for name in PACKAGES:
            with running(name) as port:
                for work, (size, count, clients) in works.items():
                    sent = requests(bodies(count, size, 1), KEY)
                    asyncio.run(load(port, sent[: clients * 2], clients))
                    begin = time.perf_counter()
                    took = 1e3 * np.array(asyncio.run(load(port, sent, clients)))
                    found = count / (time.perf_counter() - begin), *np.quantile(took, [0.5, 0.99])
                    times.setdefault((name, work), []).append(found)
                first[name] = key_first(port)
    for name, packages in PACKAGES.items():
        size = sum(map(package_mb, packages))
        print(
            f"{name}: import {import_ms(MODULES[name]):.0f} ms, {size:.1f} MiB beside pydantic, "
            f"key before body: {'yes' if first[name] else 'no'}"
        )
        for work in works:
            rate, p50, p99 = np.median(times[name, work], axis=0)
            print(f"  {work:<14}{rate:8,.0f} requests/s  p50 {p50:6.1f} ms  p99 {p99:6.1f} ms")


if __name__ == "__main__":
    main()
