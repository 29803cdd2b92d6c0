"""Prints what the pinned set holds, as CycloneDX 1.6: `python -m docs.sbom > sbom.json`.

Names, versions and hashes are those of `requirements/*.txt`; licences those of packages that are
installed here. Nothing is looked up anywhere.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_PIN = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)(.*?)(?=^[A-Za-z0-9#]|\Z)", re.M | re.S
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> None:
    """Print the document."""
    json.dump(document(pinned()), sys.stdout, indent=2)
    print()


def pinned() -> str:
    """Return all pinned requirements, as pip reads them."""
    files = (ROOT / "requirements" / f"{name}.txt" for name in ("dev", "torch", "docs"))
    return "".join(path.read_text(encoding="utf-8") for path in files)


def document(text: str) -> dict[str, Any]:
    """Return the document of pinned requirements, `text` as pip reads it."""
    from vicinal import __version__

    root = {"type": "library", "name": "vicinal", "version": __version__}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root | {"licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": list(components(text)),
    }


def components(text: str) -> Iterator[dict[str, Any]]:
    """Yield a component for each pinned package; several files may pin one."""
    for name, version, rest in {pin[:2]: pin for pin in _PIN.findall(text)}.values():
        normal = re.sub(r"[-_.]+", "-", name).lower()
        found = {
            "type": "library",
            "name": normal,
            "version": version,
            "purl": f"pkg:pypi/{normal}@{version}",
        }
        hashes = [{"alg": "SHA-256", "content": value} for value in _HASH.findall(rest)]
        licence = _licence(name)
        yield (
            found
            | ({"hashes": hashes} if hashes else {})
            | ({"licenses": licence} if licence else {})
        )


def _licence(name: str) -> list[dict[str, Any]]:
    """Return the licence that an installed package states, if it does so in a word or two."""
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        return []
    if expression := stated.get("License-Expression"):
        return [{"expression": expression}]
    kinds = [
        c.rpartition(" :: ")[2]
        for c in stated.get_all("Classifier", [])
        if c.startswith("License ::")
    ]
    return [{"license": {"name": kind}} for kind in kinds]


if __name__ == "__main__":
    main()
