"""The fields of every kind of release that a plan can hold, from `vicinal.accounting`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_HEAD = """# Plans: the kinds of releases

A plan is a JSON object: `delta`, and `releases`, a list of objects with `kind`, the fields of that
kind and `count` (1). `vicinal account` prices it, `vicinal calibrate` finds one field of it,
`vicinal audit` attacks it.

```json
{"delta": 1e-5,
 "releases": [{"kind": "noisy_max", "sigma": 20, "gamma": 0.2, "count": 4000}]}
```

[Accounting](../explanation/accounting.md) says what each costs and where that is proven.

"""


def pages(root: Path) -> Iterator[tuple[str, str]]:  # noqa: ARG001
    """Yield the page of plans."""
    from vicinal.accounting.kinds import KINDS

    yield "plans.md", _HEAD + "".join(_kind(name, kind) for name, kind in KINDS.items())


def _kind(name: str, kind: type[Any]) -> str:
    rows = "".join(map(_field, dataclasses.fields(kind)))
    meaning = (inspect.getdoc(kind) or "").replace("``", "`").split("\n\n")[0]
    head = "| field | type | meaning | default |\n|---|---|---|---|\n"
    return f"## {name}\n\n{meaning}\n\n{head}{rows}\n"


def _field(field: dataclasses.Field[Any]) -> str:
    needed = field.default is dataclasses.MISSING
    default = "needed" if needed else "" if field.default is None else f"`{field.default}`"
    check, meaning = field.metadata["check"], field.metadata["doc"]
    return f"| `{field.name}` | {check.type_name} | {meaning} | {default} |\n"
