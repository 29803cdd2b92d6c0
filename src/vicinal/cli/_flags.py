"""Messages name parameters as Python does; on the command line they name the flag instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

FLAG_OF = {
    "id": "name",
    "n_features": "features",
    "n_neighbors": "neighbors",
    "n_queries": "queries",
    "n_records": "records",
    "n_shards": "shards",
    "reuse_predictions": "reuse",
}
"""Names in Python whose option has another one, and that option's name in a command."""

_NAMED = re.compile(r"'(\w+)' (?:parameter|option|argument)\b")


def with_flags(message: str, command: Any) -> str:
    """Return a message that names the command's flags, where it has one for the parameter."""
    flags = dict(_flags(command))

    def flag(found: re.Match[str]) -> str:
        name = found[1]
        known = flags.get(name) or flags.get(FLAG_OF.get(name, ""))
        return found[0] if known is None else f"{known} option"

    return _NAMED.sub(flag, message)


def _flags(command: Any) -> Iterator[tuple[str, str]]:
    """Yield each option's name and its longest flag; of a group those of all its commands."""
    for option in getattr(command, "params", ()):
        flags = [flag for flag in option.opts if flag.startswith("--")]
        if flags:
            yield option.name, flags[0]
            yield flags[0].removeprefix("--").replace("-", "_"), flags[0]
    for inner in getattr(command, "commands", {}).values():
        yield from _flags(inner)
