"""Raises an exception at a chosen executed line of the package, in any thread.

`Visited` lists the lines that a piece of work executes; `FaultAt` raises MemoryError the first
time that a line is about to be executed. A line is (file below src/vicinal, number). Lines of the
standard library's code for `with` count, too, where a function of the package runs into them: a
line is (file and number of that function, number in contextlib.py) then.
"""

import contextlib
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
        if self.visit is None:
            return None
        name, caller = frame.f_code.co_filename, frame.f_back
        if name.startswith(ROOT):
            return self._trace_line
        if name == contextlib.__file__ and caller and caller.f_code.co_filename.startswith(ROOT):
            return self._trace_line
        return None

    def _trace_line(self, frame, event, _argument):
        if event == "line" and self.visit is not None:
            place = frame
            where = ""
            if frame.f_code.co_filename == contextlib.__file__:
                place = frame.f_back
                where = f":{place.f_lineno}"
            self.visit((place.f_code.co_filename[len(ROOT) :] + where, frame.f_lineno))
        return self._trace_line


@contextmanager
def tracing():
    """Yield a tracer, installed for threads that are started in the body.

    For this thread, :class:`Visited` and :class:`FaultAt` install it: all else runs ten times as
    fast without.
    """
    tracer = Tracer()
    earlier = sys.gettrace()
    threading.settrace(tracer)
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
        sys.settrace(self.tracer)
        self.tracer.visit = self._seen.setdefault
        return self

    def __exit__(self, *_):
        self.tracer.visit = None
        sys.settrace(None)


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
        sys.settrace(self.tracer)
        self.tracer.visit = self._visit
        return self

    def __exit__(self, *_):
        self.tracer.visit = None
        sys.settrace(None)
