"""Examples in docstrings run, and whatever a package exports has one."""

import ast
import doctest
import importlib
import inspect
import re

import pytest

from docs.site import api

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def places():
    """Return where each exported name is found first, as a module and a name; imports nothing."""
    found = {}
    for path in api.public_packages():
        for name in api.exports(path):
            found.setdefault(name, (api._module(path), name))
    return list(found.values())


def exported(module, name):
    """Return what a package exports if that has an example, else None: a constant, a module."""
    value = getattr(importlib.import_module(module), name)
    return value if inspect.isclass(value) or inspect.isfunction(value) else None


@pytest.mark.parametrize(
    ("module", "name"), [pytest.param(*place, id=".".join(place)) for place in places()]
)
def test_every_public_name_has_an_example_that_runs(module, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = exported(module, name)
    if value is None:
        return
    (test,) = doctest.DocTestFinder(recurse=False).find(value)
    assert test.examples or module == "vicinal.errors", "an error is raised, not called"
    told = []
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not told, "".join(told)


def test_every_public_method_has_a_docstring():
    """Else the reference leaves it out."""
    lacking = []
    for place in places():
        value = getattr(importlib.import_module(place[0]), place[1])
        for name in dir(value) if inspect.isclass(value) else ():
            method = getattr(inspect.getattr_static(value, name), "__func__", getattr(value, name))
            ours = inspect.isfunction(method) and method.__module__.startswith("vicinal")
            if ours and not name.startswith("_") and not inspect.getdoc(getattr(value, name)):
                lacking.append((*place, name))
    assert lacking == []


def test_a_name_that_two_packages_export_is_one_thing():
    """Else only the first one's example would run."""
    known = dict(reversed(place) for place in places())
    for path in api.public_packages():
        package = importlib.import_module(api._module(path))
        for name in set(api.exports(path)) - {"__version__"}:
            first = getattr(importlib.import_module(known[name]), name)
            assert getattr(package, name) is first, name


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


def described(docstring):
    """Return the names that a paragraph or a list describes, as "`name`, float (n,): what"."""
    lists = re.findall(
        r"(?:^|(?<=[.;] ))(?:- )?((?:`\w+`(?:, )?)+)(?:[^`:;.]|\.\.)*?:\s", docstring, re.MULTILINE
    )
    return {name for each in lists for name in re.findall(r"`(\w+)`", each)}


def declared(node):
    """Return the names of a function's parameters, or of a class's fields, methods and arguments.

    A class may describe the recurrent arguments of its methods once.
    """
    if isinstance(node, ast.ClassDef):
        inits = [part for part in node.body if getattr(part, "name", "") == "__init__"]
        fields = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
        functions = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        methods = {part.name for part in functions}.union(*map(declared, functions))
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
            inherits = isinstance(node, ast.ClassDef) and bool(node.bases)
            built_here = not inherits or "__init__" in {
                getattr(one, "name", "") for one in node.body
            }
            listed = documented(text, "Parameters") if built_here else set()
            if isinstance(node, ast.ClassDef) and not inherits:
                listed |= documented(text, "Attributes")
            listed |= described(text)
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
    source = (
        'def f(a):\n    """Do.\n\n    `a`, int (n,): this. `b`: that: `c`.\n    - `d`: no.\n    """'
    )
    assert sorted(strangers(source)) == ["f.b", "f.d"]
