"""Options of a plan on the command line: one for each parameter, made of the tables.

The tables import numpy, so options are made when a command that takes them runs or shows its help.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from vicinal.cli._group import FLAG_OF

_KEPT = "plan"
_OF_STORES = (
    *("classes", "bounds", "scale", "typical_range", "n_thresholds", "labels", "tau"),
    *("kernel", "norm_bound", "index"),
)
"""What all audiences of a store share."""

_LEFT_OUT = ("execution", "interactions", "simulation_seed")
"""What a store sets itself, or does not take."""


class PlanCommand(TyperCommand):
    """A command that takes a plan: its own options, and one for each parameter that it may set."""

    left_out: tuple[str, ...] = _LEFT_OUT
    _complete: bool

    @property
    def params(self) -> list[Any]:
        """All options: one list, which the parser adds its own to."""
        if not self._complete:
            self._params.extend(_options(self.left_out))
            self._complete = True
        return self._params

    @params.setter
    def params(self, own: list[Any]) -> None:
        self._params, self._complete = list(own), False

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what was given of the plan waits in the context."""
        fields = _parameters()
        texts = {
            name: ctx.params.pop(name)
            for name in fields
            if name not in self.left_out and name in ctx.params
        }
        ctx.meta[_KEPT] = {
            name: fields[name].metadata["check"].parsed(text)
            for name, text in texts.items()
            if text is not None
        }
        return super().invoke(ctx)


class AudiencePlanCommand(PlanCommand):
    """A command that takes the plan of a further audience."""

    left_out = (*_LEFT_OUT, *_OF_STORES)


def plan_given(ctx: Any) -> dict[str, Any]:
    """Return the parameters that were given on the command line, as an estimator takes them."""
    return dict(ctx.meta[_KEPT])


def default_of(name: str) -> Any:
    """Return what a parameter is where it was not given."""
    return _parameters()[name].default


@cache
def _parameters() -> dict[str, dataclasses.Field[Any]]:
    from vicinal._parameters import declared
    from vicinal.planning import PARAMETERS

    return {each.name: each for taken in PARAMETERS.values() for each in declared(taken)}


@cache
def _options(left_out: tuple[str, ...]) -> list[Any]:
    """Return the options as typer makes them of a function that takes them all."""
    names = [name for name in _parameters() if name not in left_out]
    kinds = {name: Annotated[str | None, _option(name)] for name in names}

    def takes_all(**plan: str | None) -> None: ...

    keyword = inspect.Parameter.KEYWORD_ONLY
    takes_all.__annotations__ = kinds
    takes_all.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, keyword, default=None, annotation=k) for n, k in kinds.items()]
    )
    app = typer.Typer(add_completion=False)
    app.command()(takes_all)
    option_of = {option.name: option for option in typer.main.get_command(app).params}
    return [option_of[name] for name in names]


def _option(name: str) -> Any:
    from vicinal._parameters import Unless

    each = _parameters()[name]
    check, flag = each.metadata["check"], FLAG_OF.get(name, name).replace("_", "-")
    if isinstance(check, Unless) and check.automatic is None:
        check = check.check  # there is no word for it here: it is left out
    plain = re.sub(r",? see :mod:[\w.]+", "", each.metadata["doc"].replace("`", ""))
    first = re.split(r"\.(?: (?=[A-Z\"])|$)", plain)[0]
    default = "" if each.default in (None, dataclasses.MISSING) else f"; default {each.default}"
    help_text = f"{first} ({check.option_type}{default or ''})."
    return typer.Option(f"--{flag}", help=help_text, metavar=check.metavar, show_default=False)
