"""Examples in docstrings run; whatever the top level exports has one."""

from __future__ import annotations

import doctest
import importlib
import inspect

import pytest

import vicinal
from docs.site import api

EXTERNAL = {"ImageFeatures", "OnnxFeatures", "SentenceFeatures"}
"""They need a network's file, which is large: tutorials show them."""

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def exported():
    """Return what packages export, once each, that has an example."""
    found = {}
    for path in api.public_packages():
        module = importlib.import_module(api._module(path))
        for name in api.exports(path):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and ">>>" in str(
                value.__doc__
            ):
                found.setdefault(id(value), (f"{module.__name__}.{name}", value))
    return list(found.values())


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in exported()])
def test_the_example_of_a_docstring_runs(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(value)
    told = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not told, "".join(told)


def test_every_name_of_the_top_level_has_an_example():
    names = {name for name in vicinal.__all__ if not name.startswith("__")} - EXTERNAL
    values = {name: getattr(vicinal, name) for name in names}
    lacking = [
        name for name, value in values.items()
        if not inspect.ismodule(value) and ">>>" not in value.__doc__
    ]  # fmt: skip
    assert lacking == []


def test_an_example_that_fails_is_noticed():
    def wrong():
        """Add.

        >>> 1 + 1
        3
        """

    (test,) = doctest.DocTestFinder().find(wrong, globs={})
    told = []
    doctest.DocTestRunner().run(test, out=told.append)
    assert told
