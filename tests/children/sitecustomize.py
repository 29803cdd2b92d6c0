"""Every Python that a test starts notes that it draws from the system's entropy: see entropy.py.

Python runs this file at its start, as tests put its folder on PYTHONPATH. What is noted is the test
that started the process; what is drawn stays as it is.
"""

import os
import sys
from contextlib import suppress

_honest = os.urandom


def _noting(size: int) -> bytes:
    """Draw as the system does, and note it if this package asks."""
    if sys._getframe(1).f_globals.get("__name__", "").startswith("vicinal."):
        note()
    return _honest(size)


def note() -> None:
    """Leave a file in the folder of notes, named as the file of the test that runs."""
    from pathlib import Path  # here, as most processes draw nothing

    test = os.environ.get("PYTEST_CURRENT_TEST", "no test").partition("::")[0]
    with suppress(OSError):  # the tests have ended, and their folder has gone
        (Path(os.environ["NOTED_DRAWS"]) / test.replace("/", "+")).touch()


if "NOTED_DRAWS" in os.environ:
    os.urandom = _noting
