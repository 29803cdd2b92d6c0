"""The cache of compiled code: a change of any source of a function starts a new cache."""

import ast
import importlib
import types
from functools import cache
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from vicinal import compiled as _compiled

PACKAGE = Path(_compiled.__file__).parent
COMPILED = sorted(path for path in PACKAGE.rglob("*.py") if "\n@compiled\n" in path.read_text())


@cache
def imported_names(path):
    """Return (file, name) of the definition of each name that a file imports from the package."""
    definitions = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vicinal":
            for alias in node.names:
                path_of_name = locate(node.module, alias.name)
                definitions[alias.asname or alias.name] = (path_of_name, alias.name)
    return definitions


def locate(module, name):
    """Return the file that defines a name which can be imported from a module."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    if path.with_suffix(".py").is_file():
        return path.with_suffix(".py")
    return (path / name).with_suffix(".py")  # a module of a package


@cache
def assigned_expressions(path):
    """Return the expressions that a file assigns to its module-level names, by name."""
    assigned = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        assigned[name.id] = node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            assigned[node.target.id] = node.value
    return assigned


def defining_files(path, name):
    """Return the files from which a constant of a module is computed, including its own."""
    imported = imported_names(path)
    if name in imported:
        return defining_files(*imported[name])
    files = {path}
    for node in ast.walk(assigned_expressions(path).get(name, ast.Constant(None))):
        if isinstance(node, ast.Name) and node.id != name:
            files |= defining_files(path, node.id)
    return files


def names_in(code):
    """Yield all global names to which a function and its inner functions refer."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


def sources_of(function):
    """Return the files from which a function is compiled."""
    python = function.py_func
    assert python.__closure__ is None, "closures are not examined"
    path = Path(python.__code__.co_filename)
    files = {path}
    for name in names_in(python.__code__):
        value = python.__globals__.get(name)
        if isinstance(value, Dispatcher):
            files.add(Path(value.py_func.__code__.co_filename))
        elif value is not None and not isinstance(value, types.ModuleType):
            files |= defining_files(path, name)
    return files


def test_the_list_of_sources_holds_all_that_functions_are_compiled_from_and_no_more():
    """Fails if a charge could use an outdated constant from the cache."""
    sources = set()
    for path in COMPILED:
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        module = importlib.import_module(name)
        functions = [f for f in vars(module).values() if isinstance(f, Dispatcher)]
        assert functions, path
        sources.update(*map(sources_of, functions))
    listed = [PACKAGE / name for name in _compiled.KERNEL_SOURCES]
    assert sources == set(listed)
    assert listed == sorted(set(listed))


def test_a_change_of_any_source_starts_a_new_cache(tmp_path, monkeypatch):
    for name in _compiled.KERNEL_SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(_compiled, "_PACKAGE", tmp_path)
    other = tmp_path / "other.py"
    other.write_text("")
    digests = set()
    for path in (None, other, *(tmp_path / name for name in _compiled.KERNEL_SOURCES)):
        if path is not None:
            path.write_text("changed")
        _compiled.compute_source_digest.cache_clear()
        digests.add(_compiled.compute_source_digest(other))
    _compiled.compute_source_digest.cache_clear()
    assert len(digests) == 2 + len(_compiled.KERNEL_SOURCES)


def test_compiling_is_reported_and_reading_from_the_disk_is_not(tmp_path, monkeypatch):
    """Functions of other packages are not counted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "twice.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("twice").twice
    counts = []
    watchers = [lambda n_compiled, _n_functions: counts.append(n_compiled)]
    monkeypatch.setattr(_compiled, "compile_watchers", watchers)
    assert _compiled.numba.njit(function)(4) == 8
    assert len(counts) == 0
    function.__module__ = "vicinal.twice"
    for _ in range(2):
        assert _compiled.compiled(function)(4) == 8
        assert len(counts) == 1
