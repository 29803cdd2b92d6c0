"""A PostgreSQL server for the tests that want one; they are skipped where it cannot be had."""

from __future__ import annotations

import itertools

import pytest

import store_tools as tools

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres():
    """Run a server for the session and yield its URL."""
    with tools.postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(request):
    """Return a function that makes an empty database and returns its URL."""
    return lambda: tools.fresh_database(
        request.getfixturevalue("postgres"), f"test{next(_NUMBERS)}"
    )
