"""A real browser for the tests of the console, driven by the DevTools protocol."""

import itertools
import json
import os
import subprocess
import time
from contextlib import contextmanager
from urllib.request import urlopen

import pytest

import programs

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


class Page:
    """One tab."""

    def __init__(self, socket):
        self._socket = socket
        self._ids = itertools.count(1)
        self.events: list[dict] = []

    def send(self, method, **params):
        """Send a command and return its result; what happens meanwhile goes to `events`."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=240))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def run(self, script):
        """Return what an expression is, as JSON has it."""
        reply = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def until(self, condition, seconds=240.0):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, (condition, self.run("document.body.innerText"))
            time.sleep(0.05)

    def open(self, url):
        """Go to a page and wait until its scripts have run."""
        self.send("Page.enable")
        self.send("Runtime.enable")
        self.send("Log.enable")
        self.send("Network.enable")
        self.send("Page.navigate", url=url)
        self.until(f"location.href === {url!r} && document.readyState === 'complete'")

    def press(self, key, text=""):
        """Press a key as a person does."""
        codes = {"Enter": 13, "Tab": 9, " ": 32}
        for kind in ("keyDown", "keyUp"):
            down = {"text": text} if text and kind == "keyDown" else {}
            self.send(
                "Input.dispatchKeyEvent", type=kind, key=key,
                windowsVirtualKeyCode=codes.get(key, 0), **down,
            )  # fmt: skip

    def type(self, text):
        """Type into what has the focus."""
        self.send("Input.insertText", text=text)

    def size(self, width, height, *, dark=False):
        """Be so large, and prefer light or dark."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=False,
        )  # fmt: skip
        value = "dark" if dark else "light"
        self.send(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": value}],
        )

    def troubles(self):
        """Return errors of scripts, of the policy, and addresses outside the service."""
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"].get("text", ""))
            entry = event["params"].get("entry", {})
            if entry.get("level") == "error" and "status of 401" not in entry["text"]:
                found.append(entry["text"])
        return found

    def addresses(self):
        """Return all URLs that were asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]


@contextmanager
def page(folder):
    """Start a browser with an empty profile in `folder`, and yield its tab."""
    connect = pytest.importorskip("websockets.sync.client").connect
    process = subprocess.Popen(
        [programs.needed("browser"), f"--user-data-dir={folder}", *OPTIONS],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    try:
        port = _port(folder / "DevToolsActivePort", process)
        with urlopen(f"http://127.0.0.1:{port}/json/list") as reply:
            tabs = [tab for tab in json.load(reply) if tab["type"] == "page"]
        with connect(tabs[0]["webSocketDebuggerUrl"], max_size=None, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(120)


def _port(path, process):
    end = time.monotonic() + 240
    while not (path.exists() and path.read_text().strip()):
        assert process.poll() is None, "the browser ended"
        assert time.monotonic() < end, "the browser does not come up"
        time.sleep(0.05)
    return int(path.read_text().split()[0])
