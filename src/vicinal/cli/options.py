"""Options that several commands have, each declared once, groups of them, and options of plans.

A group is a dataclass whose fields are options. Options of plans are made of the tables of
parameters, one for each; the tables import numpy, so that is done when a command that takes a plan
runs or shows its help.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from vicinal.errors import InvalidInput

if TYPE_CHECKING:
    from vicinal.ledger.renewal import Renewal

Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
StorePath = Annotated[Path, Argument(metavar="STORE", help="Folder of the store or the cluster.")]
Epsilon = Annotated[float, Option(help="Upper bound on the privacy loss.")]
Delta = Annotated[float, Option(help="Probability that the bound fails.")]
Data = Annotated[
    Path, Option(help="Private records: .parquet, .csv, .xlsx, .npz, or a folder of images.")
]
Label = Annotated[str | None, Option(help="Column that holds the labels.")]
Subject = Annotated[str | None, Option(help="Column that holds the subject ids.")]
SubjectIds = Annotated[list[str] | None, Option(help="A subject id. Repeat for more.")]
IdsDiffer = Annotated[
    bool,
    Option("--ids-differ", help="Ids that differ only by zeros, case or blanks are other people."),
]
SubjectFile = Annotated[Path | None, Option(help="File with one subject id per line.")]
Audience = Annotated[str, Option(help="Audience whose plan and budgets to use.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no summary and no guarantee.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask. Needed without a terminal.")]
AcceptWeakPlan = Annotated[
    bool, Option("--yes", "-y", help="Accept an epsilon above 20, or a delta above 1/records.")
]
DryRun = Annotated[
    bool,
    Option("--dry-run", help="Show the price and what to expect; write, draw and charge nothing."),
]
Ledger = Annotated[
    str | None, Option(help="Keep budgets in this postgresql:// database instead of SQLite.")
]
Witness = Annotated[
    Path | None, Option(help="File that detects old copies of the store. Use another disk.")
]
ShardSeconds = Annotated[
    float,
    Option(
        "--shard-s",
        min=0.01,
        help="How many seconds to wait for a cluster's shards, or for their start.",
    ),
]
AcceptLoss = Annotated[
    bool, Option("--accept-loss", help="Open a store whose charges are lost. Spends all budgets.")
]


@dataclasses.dataclass(frozen=True)
class RenewalOptions:
    """When parts of budgets come."""

    renew: Annotated[
        str | None,
        Option(
            help="Let budgets and answers come in parts: monthly, weekly, daily, or every so many "
            "days. Epsilon and --queries are of all parts together."
        ),
    ] = None
    periods: Annotated[int | None, Option(help="How many parts, with --renew.")] = None
    unspent: Annotated[
        str | None,
        Option(help="What becomes of a part that is not spent: lost (default) or carried."),
    ] = None

    @property
    def words(self) -> list[str]:
        """What a dry run says of it."""
        return [f"Answers and budgets come in {self.renewal()}."] if self.renew else []

    def renewal(self) -> Renewal | None:
        """Return what was declared; None for nothing."""
        from vicinal.ledger.renewal import Renewal

        if self.renew is None:
            for name in ("periods", "unspent"):
                if getattr(self, name) is not None:
                    raise InvalidInput(f"The {name!r} option needs --renew.")
            return None
        every = int(self.renew) if self.renew.isdecimal() else self.renew
        if self.periods is None:
            raise InvalidInput("The 'renew' option needs --periods: how many parts there are.")
        return Renewal(every, self.periods, self.unspent or "lost")


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
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, each in signature.parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            yield each.replace(kind=keyword, annotation=kind)
            continue
        of_fields = get_type_hints(kind, include_extras=True)
        for field in dataclasses.fields(kind):
            missing = field.default is dataclasses.MISSING
            default = inspect.Parameter.empty if missing else field.default
            annotation = of_fields[field.name]
            yield inspect.Parameter(field.name, keyword, default=default, annotation=annotation)


FLAG_OF = {
    "bounds": "target",
    "id": "name",
    "n_features": "features",
    "n_neighbors": "neighbors",
    "n_queries": "queries",
    "n_records": "records",
    "n_shards": "shards",
}
"""Parameters of plans whose option has another name, and that option's name in a command."""

_PLAN = "plan"
_LEFT_OUT = ("execution", "interactions", "reuse_predictions", "simulation_seed")
"""What a store sets itself, or does not take."""


OPTIONS = "Options"
_PANELS = {
    "Features": ("columns", "model", "components", "power"),
    "Public rows": ("reference",),
    "Classes": ("release", "class_prior", "cost"),
    "Numbers and several labels": (
        *("bounds", "scale", "typical_range", "labels", "tau", "largest_error"),
    ),
    "Private model": ("model_share", "model_refreshes"),
    "Neighbours and noise": (
        *("n_neighbors", "neighbors", "noise_multiplier", "index", "records_per_subject"),
        *("sampling_rate", "sigma_votes", "sigma_screen", "threshold"),
    ),
    "Training": (*("method", "network", "augmentation", "steps", "overlapping", "onnx", "seed"),),
    "Storage and machines": ("ledger", "witness", "ray", "shard_s"),
    "Renewal": ("renew", "periods", "unspent"),
    "For the published algorithm": (
        *("kernel", "bandwidth", "norm_bound", "min_similarity", "neighbor_count", "accounting"),
    ),
    "Special cases": ("ids_differ", "epsilon_total", "accept_loss", "yes", "interactions"),
    "Output": ("dry_run", "quiet", "json", "help"),
}
"""Headings under which help lists options; the others come first, under a heading of their own."""

_FIRST = ("data", "label", "subject", "features", "schema", "public", "classes", "n_queries")
_PANEL_OF = {name: heading for heading, names in _PANELS.items() for name in names}
_SHORT = 12


class PanelCommand(TyperCommand):
    """A command whose help lists everyday options first, and the others by what they are about."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options into the help."""
        params = [(each, record) for each in self.get_params(ctx)
                  if (record := each.get_help_record(ctx)) is not None]  # fmt: skip
        params.sort(
            key=lambda pair: _FIRST.index(n) if (n := pair[0].name) in _FIRST else len(_FIRST)
        )
        panels: dict[str, list[Any]] = {name: [] for name in ("Arguments", OPTIONS, *_PANELS)}
        for each, record in params:
            few = len(params) <= _SHORT
            heading = OPTIONS if few else _PANEL_OF.get(each.name or "", OPTIONS)
            panels["Arguments" if each.param_type_name == "argument" else heading].append(record)
        for heading, records in panels.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


class PlanCommand(PanelCommand):
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
        fields = _parameters()
        names = [name for name in fields if name not in self.left_out and name in ctx.params]
        given = {name: ctx.params.pop(name) for name in names}
        ctx.meta[_PLAN] = {
            name: fields[name]
            .metadata["check"]
            .parsed_option([value] if isinstance(value, str) else value)
            for name, value in given.items()
            if value is not None and value != ()
        }
        return super().invoke(ctx)


class AudiencePlanCommand(PlanCommand):
    """A command that takes the plan of a further audience, without what all audiences share."""

    left_out = (
        *_LEFT_OUT,
        *("classes", "bounds", "scale", "typical_range", "labels", "tau"),
        *("kernel", "norm_bound", "index"),
    )


def plan_given(ctx: Any) -> dict[str, Any]:
    """Return the parameters that were given on the command line, as an estimator takes them."""
    return dict(ctx.meta[_PLAN])


@functools.cache
def _parameters() -> dict[str, dataclasses.Field[Any]]:
    from vicinal.parameters import get_parameters
    from vicinal.planning.parameter_tables import PARAMETERS

    return {each.name: each for taken in PARAMETERS.values() for each in get_parameters(taken)}


@functools.cache
def _options(left_out: tuple[str, ...]) -> list[Any]:
    """Return the options as typer makes them of a function that takes them all."""
    names = [name for name in _parameters() if name not in left_out]
    kinds = {name: _option_type(name) for name in names}

    def takes_all(**plan: str | list[str] | None) -> None: ...

    keyword = inspect.Parameter.KEYWORD_ONLY
    takes_all.__annotations__ = kinds
    takes_all.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, keyword, default=None, annotation=k) for n, k in kinds.items()]
    )
    app = typer.Typer(add_completion=False)
    app.command()(takes_all)
    option_of = {option.name: option for option in typer.main.get_command(app).params}
    return [option_of[name] for name in names]


def _option_type(name: str) -> Any:
    """Return the annotation of a parameter's option: a list where the option may be repeated."""
    if _parameters()[name].metadata["check"].repeatable:
        return Annotated[list[str] | None, _option(name)]
    return Annotated[str | None, _option(name)]


def _option(name: str) -> Any:
    from vicinal.parameters import Unless

    each = _parameters()[name]
    check, flag = each.metadata["check"], FLAG_OF.get(name, name).replace("_", "-")
    if isinstance(check, Unless):
        check = check.check  # the value in its place is the default
    first = re.split(r"\.(?: (?=[A-Z\"])|$)", each.metadata["doc"].replace("`", ""))[0]
    taken = f" ({check.option_type})" if check.option_type else ""
    default = "" if each.default in (None, dataclasses.MISSING) else f" [default: {each.default}]"
    help_text = f"{first}{taken}.{default}"
    return Option(f"--{flag}", help=help_text, metavar=check.metavar, show_default=False)
