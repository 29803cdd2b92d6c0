"""Acting as other accounts, which only tests that run as root can do."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

USER = 65534
"""User id of this user in :func:`other_account`: without the rights of root."""
STRANGER = 65533
"""User id of another account."""


@contextmanager
def other_account(user=USER):
    """Act as an account without the rights of root."""
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def unprivileged(tmp_path):
    """An empty folder, in a test that runs without the rights of root.

    For tests with paths outside of their folders: a fault in what they test, acting as root, once
    put a regular file in place of `/dev/null`.
    """
    if os.geteuid():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp())
    os.chown(folder, USER, USER)
    try:
        with other_account():
            yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def shared_folder():
    """A folder that other accounts may enter, unlike pytest's."""
    if os.geteuid():
        pytest.skip("only root acts as another account")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
