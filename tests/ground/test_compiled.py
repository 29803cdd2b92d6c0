"""The cache of compiled code: a change to anything that went into a function starts a new one."""

import ast
import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

import vicinal
from vicinal import _compiled

PACKAGE = Path(vicinal.__file__).parent
COMPILED = sorted(path for path in PACKAGE.rglob("*.py") if "\n@compiled\n" in path.read_text())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A small package of the same name, in place of this one."""
    root = tmp_path / "vicinal"
    for name, text in {
        "kernels": "from vicinal.parts import (\n    _one,\n)\nfrom vicinal import single",
        "parts/__init__": "from vicinal.parts._two import two",
        "parts/_one": "    from vicinal.low import below  # in a function",
        "parts/_two": "",
        "low/__init__": "below = 1",
        "low/_inside": "",
        "single": "import vicinal.low._inside",
        "other": "",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.py").write_text(text)
    monkeypatch.setattr(_compiled, "_PACKAGE", root)
    _compiled._imported.cache_clear()
    yield root
    _compiled._imported.cache_clear()


def test_sources_are_what_a_file_imports_and_all_of_a_package_that_names_come_from(package):
    found = {str(path.relative_to(package)) for path in _compiled.sources(package / "kernels.py")}
    assert found == {
        "kernels.py", "parts/_one.py", "low/__init__.py", "low/_inside.py", "single.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "matters"),
    [("low/_inside", True), ("parts/_one", True), ("kernels", True), ("other", False)],
)
def test_a_change_matters_where_it_is_imported_and_nowhere_else(package, changed, matters):
    def digest():
        _compiled._source_digest.cache_clear()
        _compiled._imported.cache_clear()
        return _compiled._source_digest(package / "kernels.py")

    before = digest()
    path = package / f"{changed}.py"
    path.write_text(path.read_text() + "\n# changed")
    assert (digest() != before) == matters


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_no_import_of_a_compiled_file_is_overlooked(path):
    for source in _compiled.sources(path):
        known = _compiled._imported(source)
        assert known >= set(imported_by_syntax(source)), source


def imported_by_syntax(source):
    """Yield the modules that a file imports, read by Python's own parser."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not looked at"
            if (node.module or "").split(".")[0] == "vicinal":
                parts = [
                    node.module.split("."),
                    *([*node.module.split("."), a.name] for a in node.names),
                ]
                yield from filter(Path.is_file, map(file_of, parts))
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (file_of(name) for name in names if name[0] == "vicinal")


def file_of(parts):
    return PACKAGE.parent.joinpath(*parts).with_suffix(".py")


@pytest.mark.parametrize("path", COMPILED, ids=lambda path: path.stem)
def test_compiled_functions_call_those_of_known_files_only(path):
    """What the imports say is compared with what the functions can see once they are loaded."""
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    module = importlib.import_module(name)
    known = _compiled.sources(path)
    for function in vars(module).values():
        if isinstance(function, Dispatcher):
            assert Path(function.py_func.__code__.co_filename) in known
            assert function.py_func.__closure__ is None, "closures are not looked at"


def test_the_text_of_a_docstring_may_look_like_an_import(package):
    (package / "other.py").write_text(textwrap.dedent('"""\nfrom vicinal import single\n"""'))
    _compiled._imported.cache_clear()
    assert package / "single.py" in _compiled.sources(package / "other.py")


def test_an_alias_is_no_module(package):
    """Else a file that has one would be compiled anew whatever changes."""
    (package / "other.py").write_text("from vicinal import single as double")
    _compiled._imported.cache_clear()
    found = {path.name for path in _compiled.sources(package / "other.py")}
    assert found == {"other.py", "single.py", "_inside.py"}


def test_steps_of_an_installation_may_share_a_process():
    """Which process takes which step is luck: none may claim the records of another."""
    code = "from vicinal.reports._compile import STEPS\nfor step in STEPS:\n    step()"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compiling_is_told_to_whoever_watches_and_reading_from_the_disk_is_not(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "twice.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("twice").twice
    told: list[int] = []
    monkeypatch.setattr(_compiled, "compile_watchers", [lambda done, _most: told.append(done)])
    for module, n_told in (("somebody.elses", 0), ("vicinal.twice", 1), ("vicinal.twice", 1)):
        function.__module__ = module
        dispatcher = _compiled.compiled(function)
        if module == "somebody.elses":
            dispatcher = _compiled.numba.njit(function)
        assert dispatcher(4) == 8
        assert len(told) == n_told
