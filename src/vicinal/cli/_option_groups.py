"""Options that belong together: a dataclass; its fields are options of commands that take it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in whose place each dataclass that it takes stands with its fields.

    The names of all parameters and fields must differ.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)
    }

    @functools.wraps(command)
    def run(**options: Any) -> None:
        for name, kind in groups.items():
            fields = [each.name for each in dataclasses.fields(kind)]
            options[name] = kind(**{field: options.pop(field) for field in fields})
        command(**options)

    parameters = [*_expanded(inspect.signature(command), hints)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _expanded(signature: inspect.Signature, hints: dict[str, Any]) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command, fields in the place of dataclasses; all by keyword."""
    for name, each in signature.parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=kind)
            continue
        of_fields = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            missing = field.default is dataclasses.MISSING
            default = inspect.Parameter.empty if missing else field.default
            yield inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default,
                annotation=of_fields[field.name],
            )  # fmt: skip
