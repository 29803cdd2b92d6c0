"""How Sphinx builds the site (`make docs`); nothing is fetched, neither then nor by its readers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
os.environ["PYTHONPATH"] = str(ROOT / "src")  # of tutorials' processes, and of their commands

from docs.site import write_pages  # noqa: E402
from vicinal import __version__  # noqa: E402

write_pages(ROOT)

project, author, copyright = "vicinal", "the authors of vicinal", "the authors of vicinal"
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "docs.site.links",
]
exclude_patterns = ["site", "_templates", "generated/scripts/*.ipynb", "generated/scripts/*.py"]
templates_path = ["_templates"]
default_role = "code"
smartquotes_action = "De"  # no curly quotes: "auto" can be copied
toc_object_entries_show_parents = "hide"

# ---------------------------------------------------------------- reference from docstrings
autosummary_generate = True
autodoc_typehints = "none"  # docstrings give the types
numpydoc_show_class_members = False

# ---------------------------------------------------------------- Markdown
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

# ---------------------------------------------------------------- scripts
sphinx_gallery_conf = {
    "parallel": True,
    "examples_dirs": "../examples/scripts",
    "gallery_dirs": "generated/scripts",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"__init__|shell\.py",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 3600,
    "write_computation_times": False,
    "remove_config_comments": True,
    "plot_gallery": "True",
}

# ---------------------------------------------------------------- appearance
html_theme = "pydata_sphinx_theme"
html_title = f"vicinal {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_sidebars = {"index": [], "glossary": []}
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "back_to_top_button": False,
    "show_nav_level": 1,
    "header_links_before_dropdown": 6,
}
