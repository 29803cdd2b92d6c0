"""What Sphinx and its extensions would compute anew for every docstring and every page.

numpydoc compiles its one template for each of some thousand docstrings, and each page's words are
stemmed anew.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2.sandbox import SandboxedEnvironment
from numpydoc import docscrape_sphinx
from sphinx.search.en import SearchEnglish

_ENVIRONMENTS: dict[type, SandboxedEnvironment] = {}


def _environment(loader: Any) -> SandboxedEnvironment:
    """Return the environment of the first loader of this kind: all look in the same folders."""
    kind = type(loader)
    if kind not in _ENVIRONMENTS:
        _ENVIRONMENTS[kind] = SandboxedEnvironment(loader=loader)
    return _ENVIRONMENTS[kind]


def setup(app: Any) -> dict[str, bool]:  # noqa: ARG001 (every extension has this signature)
    """Let templates be compiled, and words be stemmed, once in each process."""
    docscrape_sphinx.SandboxedEnvironment = _environment
    SearchEnglish.stem = cache(SearchEnglish.stem)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
