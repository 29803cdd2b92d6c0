"""docs/api.md lists exactly what packages export, and every export is documented."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "api.py"


@pytest.fixture(scope="module")
def api():
    spec = importlib.util.spec_from_file_location("docs_api", PAGE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_packages_export(api):
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run: python -m docs.api"


def test_every_package_says_what_it_exports(api):
    for path in api.public_packages():
        if path.name == "__init__.py":
            assert "__all__" in path.read_text(encoding="utf-8"), path


def test_every_exported_name_is_there_and_documented(api):
    for path in api.public_packages():
        for name in api.exports(path):
            assert name.startswith("__") or len(api.summary(path, name)) > len("(a constant)"), name


def test_an_export_that_is_not_there_is_noticed(api, tmp_path):
    broken = tmp_path / "__init__.py"
    broken.write_text("__all__ = ['Ghost']")
    with pytest.raises(LookupError, match="Ghost"):
        api.summary(broken, "Ghost")
