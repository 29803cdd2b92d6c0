"""What a browser shows of the built site: nothing cut off, no markup left, every picture there.

`VICINAL_SITE` names the folder that `make docs` has built; without it nothing is looked at.
"""

import os
from pathlib import Path

import pytest

import serving_browser

SITE = Path(os.environ.get("VICINAL_SITE", ""))
FAULTS = r"""(() => {
  const found = [], wide = one => one.scrollWidth > one.clientWidth + 1;
  if (document.documentElement.scrollWidth > innerWidth + 1) found.push("the page is too wide");
  for (const one of document.querySelectorAll("article pre"))
    if (wide(one)) found.push("code is cut off: " + one.innerText.slice(0, 60));
  for (const one of document.querySelectorAll("article h1, .prev-next-info"))
    if (wide(one) || one.getBoundingClientRect().right > innerWidth)
      found.push("a title: " + one.innerText.slice(0, 60));
  for (const one of document.querySelectorAll("article pre .option"))
    if (one.getClientRects().length > 1) found.push("an option is broken: " + one.innerText);
  for (const one of document.querySelectorAll("article table"))
    if (innerWidth > 1000 && wide(one)) found.push("a table: " + one.innerText.slice(0, 60));
  for (const one of document.images)
    if (!one.complete || !one.naturalWidth) found.push("no picture: " + one.src);
  const article = document.querySelector("article");
  const role = article && article.innerText.match(/:(py:)?[a-z]+:`[^`]*`/);
  if (role) found.push("raw markup: " + role[0]);
  return found;
})()"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    if not os.environ.get("VICINAL_SITE"):
        pytest.skip("VICINAL_SITE names no built site")
    with serving_browser.page(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize("width", [1400, 420])
def test_nothing_is_cut_off(tab, width):
    """Every page, and a fifth of those of the API, as on a desk and on a telephone."""
    tab.size(width, 900)
    every = [path for path in sorted(SITE.rglob("*.html")) if "_static" not in path.parts]
    api = [path for path in every if "api" in path.parts]
    pages = sorted({*every} - {*api}) + api[::5]
    assert len(pages) > 100
    faults = {}
    for path in pages:
        tab.open(path.resolve().as_uri())
        if found := tab.run(FAULTS):
            faults[path.relative_to(SITE).as_posix()] = found
    assert not faults


def test_a_fault_is_seen(tab, tmp_path):
    (tmp_path / "page.html").write_text(
        "<article><pre style='width: 9em; overflow: auto'>a long line of code, longer</pre>"
        "<p>:meth:`fit`</p><img src='none.png'></article>"
    )
    tab.size(1400, 900)
    tab.open((tmp_path / "page.html").as_uri())
    assert [words.split(":")[0] for words in tab.run(FAULTS)] == [
        "code is cut off", "no picture", "raw markup",
    ]  # fmt: skip
