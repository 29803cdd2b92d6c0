"""Raises an exception at a chosen executed line of the package, in any thread.

`Visited` lists the lines that a piece of work executes; `FaultAt` raises MemoryError the first
time that a line is about to be executed. A line is (file below src/vicinal, number).
"""

import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import vicinal

ROOT = str(Path(vicinal.__file__).parent) + "/"


class Tracer:
    """Calls `visit(line)` before every line of the package while `visit` is set."""

    def __init__(self):
        self.visit = None

    def __call__(self, frame, _event, _argument):
        """Trace a function that is called, if it belongs to the package."""
        name = frame.f_code.co_filename
        if self.visit is None or not name.startswith(ROOT):
            return None
        return self._trace_line

    def _trace_line(self, frame, event, _argument):
        if event == "line" and self.visit is not None:
            self.visit((frame.f_code.co_filename[len(ROOT) :], frame.f_lineno))
        return self._trace_line


@contextmanager
def tracing():
    """Install a tracer for this thread and for those that are started in the body; yield it."""
    tracer = Tracer()
    earlier = sys.gettrace()
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        yield tracer
    finally:
        tracer.visit = None
        sys.settrace(earlier)
        threading.settrace(earlier)


class Visited:
    """Context that lists the lines of its body: `lines`, each once, in order of execution."""

    def __init__(self, tracer):
        self.tracer, self._seen = tracer, {}

    @property
    def lines(self):
        return list(self._seen)

    def __enter__(self):
        self.tracer.visit = self._seen.setdefault
        return self

    def __exit__(self, *_):
        self.tracer.visit = None


class Fault(MemoryError):
    """The exception that is injected."""


class FaultAt:
    """Context that raises :class:`Fault` the first time that its body reaches a chosen line.

    `raised`: whether it did.
    """

    def __init__(self, tracer, line):
        self.tracer, self.line, self.raised = tracer, line, False

    def _visit(self, line):
        if line == self.line:
            self.tracer.visit = None
            self.raised = True
            raise Fault

    def __enter__(self):
        # Python removes a trace function that has raised, so it is installed for every fault.
        sys.settrace(self.tracer)
        self.tracer.visit = self._visit
        return self

    def __exit__(self, *_):
        self.tracer.visit = None
