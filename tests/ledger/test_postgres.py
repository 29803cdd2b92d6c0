"""What is refused of a server."""

import pytest

from vicinal.errors import PrivacyRefused
from vicinal.ledger import _postgres


class NoFlush:
    """Stands in for a server with fsync off."""

    def execute(self, statement, *_, **__):
        self.row = ("off",) if statement == "SHOW fsync" else ("",)
        return self

    def fetchone(self):
        return self.row

    def close(self):
        pass


def test_a_server_that_does_not_flush_is_refused(monkeypatch):
    driver = type("D", (), {"connect": lambda *_, **__: NoFlush(), "Error": OSError})
    monkeypatch.setattr(_postgres, "_psycopg", lambda: driver)
    with pytest.raises(PrivacyRefused, match="fsync"):
        _postgres.PostgresDatabase("postgresql:///x")
