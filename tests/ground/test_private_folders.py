"""Compiled code is read from directories that no other account can write to, and from no others."""

import importlib
import os
import shutil
import warnings

import pytest

from vicinal import compiled as _compiled
from vicinal.private_folders import find_exposed_folder, find_foreign_file, make_private_folder


@pytest.fixture
def umask():
    """Return the function that sets the umask; the previous one is restored afterwards."""
    previous = os.umask(0o022)
    yield os.umask
    os.umask(previous)


def read_mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.quick
@pytest.mark.parametrize("mask", [0o002, 0o000, 0o022, 0o077])
def test_every_directory_that_is_created_is_private_whatever_the_umask(tmp_path, umask, mask):
    tmp_path.chmod(0o755)
    umask(mask)
    folder = make_private_folder(tmp_path / "a" / "b" / "c")
    assert [read_mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    assert find_exposed_folder(folder) is None


@pytest.mark.quick
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o775, 0o777])
@pytest.mark.parametrize("which", ["a", "a/b", "a/b/c"])
def test_a_directory_or_ancestor_that_others_can_write_to_is_found(tmp_path, which, mode):
    tmp_path.chmod(0o755)
    folder = make_private_folder(tmp_path / "a" / "b" / "c")
    (tmp_path / which).chmod(mode)
    assert find_exposed_folder(folder) == tmp_path / which


@pytest.mark.quick
def test_a_sticky_ancestor_is_safe_and_a_sticky_directory_is_not(tmp_path):
    tmp_path.chmod(0o1777)
    folder = make_private_folder(tmp_path / "a")
    assert find_exposed_folder(folder) is None
    assert find_exposed_folder(tmp_path) == tmp_path


@pytest.mark.quick
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
@pytest.mark.parametrize("owner", [0, 1, 4321])
@pytest.mark.parametrize("user", [0, 4321])
@pytest.mark.parametrize("which", ["a", "a/b"])
def test_an_account_trusts_itself_and_root_alone(tmp_path, monkeypatch, owner, user, which):
    tmp_path.chmod(0o755)
    folder = make_private_folder(tmp_path / "a" / "b")
    (folder / "code").touch()
    for path in (tmp_path / which, folder / "code"):
        os.chown(path, owner, owner)
    monkeypatch.setattr(os, "getuid", lambda: user)
    is_trusted = owner in (0, user)
    assert find_exposed_folder(folder) == (None if is_trusted else tmp_path / which)
    assert (find_foreign_file(folder) is None) == is_trusted


def test_an_own_directory_that_was_exposed_is_not_made_trustworthy(tmp_path):
    """Other accounts may have written files to it, as when an earlier version created it."""
    tmp_path.chmod(0o755)
    (tmp_path / "vicinal").mkdir()
    (tmp_path / "vicinal").chmod(0o775)
    assert find_exposed_folder(make_private_folder(tmp_path / "vicinal")) == tmp_path / "vicinal"


@pytest.fixture
def twice(tmp_path, monkeypatch):
    """A compiled function whose cache lies below `tmp_path/cache`."""
    monkeypatch.setattr(_compiled, "_reported", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_compiled.numba.config, "CACHE_DIR", "")
    (tmp_path / "twofold.py").write_text("def twofold(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.reload(importlib.import_module("twofold")).twofold


def find_cached_files(tmp_path):
    return list((tmp_path / "cache").rglob("*.nbc"))


def test_compiled_code_is_kept_in_private_directories(tmp_path, umask, twice):
    tmp_path.chmod(0o755)
    umask(0o000)
    assert _compiled.compiled(twice)(4) == 8
    (cached_file,) = find_cached_files(tmp_path)
    leaf = next(path for path in cached_file.parents if path.name.startswith("kernels-"))
    assert [read_mode(path) for path in (leaf, leaf.parent, leaf.parent.parent)] == [0o700] * 3


def test_an_exposed_cache_directory_is_not_used_and_the_warning_names_it(tmp_path, twice):
    tmp_path.chmod(0o755)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o775)
    with pytest.warns(UserWarning, match=rf"chmod go-w {tmp_path / 'cache'}\)"):
        dispatcher = _compiled.compiled(twice)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        assert dispatcher(4) == 8
        assert _compiled.compiled(twice)(4) == 8
    assert not find_cached_files(tmp_path)


def test_a_cache_directory_that_becomes_exposed_after_the_import_is_not_read(
    tmp_path, twice, monkeypatch
):
    """Files written by a group member between the import and the first call must not run."""
    tmp_path.chmod(0o755)
    assert _compiled.compiled(twice)(4) == 8  # fills the cache
    dispatcher = _compiled.compiled(twice)
    calls = []
    rebuild = type(dispatcher._cache._impl).rebuild
    monkeypatch.setattr(
        type(dispatcher._cache._impl), "rebuild",
        lambda self, *arguments: calls.append(arguments) or rebuild(self, *arguments),
    )  # fmt: skip
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(UserWarning, match="another account"):
        assert dispatcher(4) == 8
    assert not calls
    (tmp_path / "cache").chmod(0o700)
    assert _compiled.compiled(twice)(4) == 8
    assert len(calls) == 1


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives away")
def test_a_file_of_another_account_in_the_cache_is_not_read(tmp_path, twice, monkeypatch):
    """Such a file may have been written while the directory was exposed."""
    tmp_path.chmod(0o755)
    assert _compiled.compiled(twice)(4) == 8
    dispatcher = _compiled.compiled(twice)
    (cached_file,) = find_cached_files(tmp_path)
    os.chown(cached_file, 12345, 12345)
    monkeypatch.setattr(type(dispatcher._cache._impl), "rebuild", None)
    with pytest.warns(UserWarning, match="another account"):
        assert dispatcher(4) == 8


def test_a_cache_that_is_removed_while_a_process_runs_is_done_without(tmp_path, twice):
    """Fails if a first call raises OSError, which closes a store."""
    tmp_path.chmod(0o755)
    assert _compiled.compiled(twice)(4) == 8
    dispatcher = _compiled.compiled(twice)
    shutil.rmtree(tmp_path / "cache")
    assert dispatcher(4) == 8
    assert dispatcher(4.5) == 9
