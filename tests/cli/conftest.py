"""What commands print must not depend on what was compiled on this machine before."""

import pytest

from vicinal.cli import output


@pytest.fixture(autouse=True)
def nothing_is_said_of_compiling(monkeypatch):
    monkeypatch.setattr(output, "FIRST_COMPILE_NOTE_S", float("inf"))
