"""Examples in docstrings run, and whatever a package exports has one."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re

import pytest

from docs.site import api

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def exported():
    """Return what packages export, once each, by its first name."""
    named = {}
    for path in api.public_packages():
        module = importlib.import_module(api._module(path))
        for name in api.exports(path):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                named.setdefault(id(value), (f"{module.__name__}.{name}", value))
    return list(named.values())


@pytest.mark.parametrize("value", [pytest.param(value, id=name) for name, value in exported()])
def test_the_example_of_a_docstring_runs(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (test,) = doctest.DocTestFinder(recurse=False).find(value)
    told = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not told, "".join(told)


def test_every_public_name_has_an_example():
    lacking = [name for name, value in exported() if ">>>" not in str(value.__doc__)]
    errors = [name for name in lacking if name.startswith("vicinal.errors.")]
    assert lacking == errors  # an error is raised, not called


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


# --- Names in docstrings are names in the code ---------------------------------------------------


def documented(docstring, heading):
    """Return the names that a section of a docstring lists."""
    section = re.search(
        rf"^{heading}\n-+\n(.*?)(?=^\S[^\n]*\n-{{3,}}\n|\Z)", docstring, re.DOTALL | re.MULTILINE
    )
    heads = re.findall(r"^\S.*", section[1], re.MULTILINE) if section else []
    names = [
        name.strip(" *:") for head in heads for name in re.split(r"\s*:\s", head)[0].split(",")
    ]
    return {name for name in names if name.isidentifier()}


def declared(node):
    """Return the names of a function's parameters, or of a class's fields and methods."""
    if isinstance(node, ast.ClassDef):
        inits = [part for part in node.body if getattr(part, "name", "") == "__init__"]
        fields = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
        methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        own = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
        return (declared(inits[0]) if inits else fields | methods) | own
    every = node.args
    rest = [part for part in (every.vararg, every.kwarg) if part]
    return {part.arg for part in (*every.posonlyargs, *every.args, *every.kwonlyargs, *rest)}


def strangers(source):
    """Return the names that docstrings list and the code does not have."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            names = declared(node)
            listed = documented(text, "Parameters")
            if isinstance(node, ast.ClassDef) and not node.bases:
                listed |= documented(text, "Attributes")
            if names and not getattr(getattr(node, "args", None), "kwarg", None):
                yield from (f"{node.name}.{name}" for name in listed - names)


def test_names_in_docstrings_exist():
    sources = sorted((api.SOURCES / "vicinal").rglob("*.py"))
    assert [name for path in sources for name in strangers(path.read_text("utf-8"))] == []


def test_a_name_that_is_gone_is_noticed():
    source = (
        'def f(a):\n    """Do.\n\n    Parameters\n    ----------\n    b : int\n        It.\n    """'
    )
    assert list(strangers(source)) == ["f.b"]


def test_headings_stand_on_their_own_line():
    sources = sorted((api.SOURCES / "vicinal").rglob("*.py"))
    joined = re.compile(r"\w -{4,} \w")
    assert [path.name for path in sources if joined.search(path.read_text("utf-8"))] == []
