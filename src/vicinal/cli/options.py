"""Command-line options: shared ones, groups of options, and options of plan parameters.

A command is a function. Typer creates an option for each parameter in its ``__signature__``, which
is generated where the options are not parameters of the function itself: a group is a dataclass
whose fields are options, and options of plan parameters are created from the parameter tables.
These import numpy, so the options are created only for a command that takes a plan, when it runs or
shows its help.

`ctx` is click's context of a call of a command: ``ctx.params`` has the value of each option by its
name, which click passes to the function as keyword arguments; ``ctx.meta`` has values that click
keeps for the function.
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
    Path,
    Option(help="Private records: .parquet, .csv, .xlsx, .npz, or a folder of images or texts."),
]
Label = Annotated[str | None, Option(help="Column that holds the labels.")]
Subject = Annotated[str | None, Option(help="Column that holds the subject ids.")]
SubjectIds = Annotated[list[str] | None, Option(help="A subject id. Repeat for more.")]
IdsDiffer = Annotated[
    bool, Option("--ids-differ", help="Ids in other spellings, as 007 and 7, are other subjects.")
]
SubjectFile = Annotated[Path | None, Option(help="File with one subject id per line.")]
Audience = Annotated[str, Option(help="Audience whose plan and budgets to use.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print no summary and no guarantee.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask. Needed without a terminal.")]
AcceptWeakPlan = Annotated[
    bool, Option("--yes", "-y", help="Accept an epsilon above 20, or a delta above 1/records.")
]
DryRun = Annotated[
    bool, Option("--dry-run", help="Show costs and expected accuracy; write and charge nothing.")
]
Ledger = Annotated[str | None, Option(help="Keep budgets in this postgresql:// database.")]
Witness = Annotated[Path | None, Option(help="File, on another disk, that detects old copies.")]
ShardSeconds = Annotated[
    float, Option("--shard-s", min=0.01, help="Seconds to wait for shards, or for their start.")
]
# Charges are lost if the newest files of a store are, as after a restored backup.
AcceptLoss = Annotated[
    bool, Option("--accept-loss", help="Open a store whose charges are lost. Spends all budgets.")
]


@dataclasses.dataclass(frozen=True)
class RenewalOptions:
    """Schedule by which budgets and answers are released in parts."""

    renew: Annotated[
        str | None,
        Option(
            help="Release budgets and answers in parts: monthly, weekly, daily, or every number of "
            "days. Epsilon and --queries are totals."
        ),
    ] = None
    periods: Annotated[int | None, Option(help="Number of parts, with --renew.")] = None
    unspent: Annotated[
        str | None, Option(help="Unspent budget of a part: lost (default) or carried.")
    ] = None

    def describe_costs(self) -> list[str]:
        """Return the line of a dry run on the schedule, if there is one."""
        renewal = self.build_renewal()
        return [] if renewal is None else [f"Answers and budgets come in {renewal}."]

    def build_renewal(self) -> Renewal | None:
        """Return the schedule; None without --renew. Raises InvalidInput for a missing option."""
        from vicinal.ledger.renewal import Renewal

        if self.renew is None:
            for name in ("periods", "unspent"):
                if getattr(self, name) is not None:
                    raise InvalidInput(f"The {name!r} option needs --renew.")
            return None
        every = int(self.renew) if self.renew.isdecimal() else self.renew
        if self.periods is None:
            raise InvalidInput("The 'renew' option needs --periods, the number of parts.")
        return Renewal(every, self.periods, self.unspent or "lost")


def expand_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the function `command` with the fields of its dataclass parameters as parameters.

    All names of parameters and fields must differ. All parameters are passed by keyword.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {
        name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)
    }

    @functools.wraps(command)
    def run(**options: Any) -> None:
        """Call the command with a dataclass instance for each group of options."""
        for name, group in groups.items():
            field_names = [field.name for field in dataclasses.fields(group)]
            options[name] = group(**{field: options.pop(field) for field in field_names})
        command(**options)

    parameters = list(_expand_parameters(inspect.signature(command), hints))
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _expand_parameters(
    signature: inspect.Signature, hints: dict[str, Any]
) -> Iterator[inspect.Parameter]:
    """Yield the keyword parameters of a command, with fields in place of dataclass parameters.

    `hints`: type of each parameter, by name.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    for name, parameter in signature.parameters.items():
        group = hints[name]
        if not dataclasses.is_dataclass(group):
            yield parameter.replace(kind=keyword, annotation=group)
            continue
        field_hints = get_type_hints(group, include_extras=True)
        for field in dataclasses.fields(group):
            is_required = field.default is dataclasses.MISSING
            default = inspect.Parameter.empty if is_required else field.default
            hint = field_hints[field.name]
            yield inspect.Parameter(field.name, keyword, default=default, annotation=hint)


def parse_class_names(texts: list[str]) -> list[Any]:
    """Return the class names in the `texts` after --classes. Raises InvalidInput if unusable."""
    from vicinal.parameters import ClassNames

    check = ClassNames()
    names: list[Any] = check("classes", check.parse_option(texts)).tolist()
    return names


FLAG_OF = {
    "bounds": "target",
    "id": "name",
    "n_features": "features",
    "n_neighbors": "neighbors",
    "n_queries": "queries",
    "n_records": "records",
    "n_shards": "shards",
}
"""Plan parameters whose option has another name, and the name of that option."""

_PLAN = "plan"  # key of the plan parameters in `ctx.meta`
_WITHOUT_OPTION = ("execution", "interactions", "reuse_predictions", "simulation_seed")
"""Plan parameters that a store sets itself or does not support."""

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
    "Storage and machines": ("ledger", "witness", "ray", "shard_timeout_s"),
    "Renewal": ("renew", "periods", "unspent"),
    "For the published algorithm": (
        *("kernel", "bandwidth", "norm_bound", "min_similarity", "neighbor_count", "accounting"),
    ),
    "Special cases": ("ids_differ", "epsilon_total", "accept_lost_charges", "yes", "interactions"),
    "Output": ("dry_run", "quiet", "json", "help"),
}
"""Headings of the help and their options; all other options come first, under "Options"."""

_PANEL_OF = {name: heading for heading, names in _PANELS.items() for name in names}
_FIRST = ("data", "label", "subject", "features", "schema", "public", "classes", "n_queries")
_MAX_WITHOUT_PANELS = 12  # the help of a command with at most this many parameters has one panel


class PanelCommand(TyperCommand):
    """A command whose help lists everyday options first and the other options by subject."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line `args` into `ctx`; return its remaining arguments.

        Raises InvalidInput if a command that takes subject ids has any: click's message would quote
        arguments, which may be ids.
        """
        takes_ids = any(option.name == "subject" and option.multiple for option in self.params)
        ctx.allow_extra_args = ctx.allow_extra_args or takes_ids
        remaining = super().parse_args(ctx, args)
        if takes_ids and remaining:
            raise InvalidInput("There are too many arguments. Name ids with --subject.")
        return remaining

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options under their headings into click's help `formatter`."""
        rank = {name: index for index, name in enumerate(_FIRST)}
        parameters: list[Any] = list(self.get_params(ctx))
        parameters.sort(key=lambda parameter: rank.get(parameter.name, len(_FIRST)))
        records = [(parameter, parameter.get_help_record(ctx)) for parameter in parameters]
        records = [(parameter, record) for parameter, record in records if record is not None]
        panel_of = {} if len(records) <= _MAX_WITHOUT_PANELS else _PANEL_OF
        panels: dict[str, list[Any]] = {name: [] for name in ("Arguments", OPTIONS, *_PANELS)}
        for parameter, record in records:
            is_argument = parameter.param_type_name == "argument"
            heading = "Arguments" if is_argument else panel_of.get(parameter.name, OPTIONS)
            panels[heading].append(record)
        for heading, panel_records in panels.items():
            if panel_records:
                with formatter.section(heading):
                    formatter.write_dl(panel_records)


class PlanCommand(PanelCommand):
    """A command with an option for each plan parameter except `without_option`.

    The function of the command has no parameters for them: :meth:`invoke` keeps their values for
    :func:`get_plan_arguments`.
    """

    without_option: tuple[str, ...] = _WITHOUT_OPTION
    _has_plan_options: bool

    @property
    def params(self) -> list[Any]:
        """All parameters, which click reads to parse a command line or to write the help.

        Options of plan parameters are created at the first reading. The list is always the same,
        because click appends to it.
        """
        if not self._has_plan_options:
            self._params.extend(_create_options(self.without_option))
            self._has_plan_options = True
        return self._params

    @params.setter
    def params(self, own_params: list[Any]) -> None:
        """Set the parameters of the command's function, as click does when it creates a command."""
        self._params = list(own_params)
        self._has_plan_options = False

    def invoke(self, ctx: Any) -> Any:
        """Run the command, with its plan parameters in ``ctx.meta`` in place of ``ctx.params``.

        There, the values of those that were given are parsed but not checked.
        """
        arguments: dict[str, Any] = {}
        for name, parameter in _get_plan_parameters().items():
            if name in self.without_option or name not in ctx.params:
                continue
            value = ctx.params.pop(name)
            if value is not None and value != ():
                texts = [value] if isinstance(value, str) else value
                arguments[name] = parameter.metadata["check"].parse_option(texts)
        ctx.meta[_PLAN] = arguments
        return super().invoke(ctx)


class AudiencePlanCommand(PlanCommand):
    """A command with an option for each plan parameter that may differ between audiences."""

    without_option = (
        *_WITHOUT_OPTION,
        *("classes", "bounds", "scale", "typical_range", "labels", "tau"),
        *("kernel", "norm_bound", "index"),
    )


def get_plan_arguments(ctx: Any) -> dict[str, Any]:
    """Return the given plan parameters, parsed but not checked, of a call of a PlanCommand."""
    return dict(ctx.meta[_PLAN])


@functools.cache
def _get_plan_parameters() -> dict[str, dataclasses.Field[Any]]:
    """Return the field of each plan parameter of any estimator, by its name."""
    from vicinal.parameters import get_parameters
    from vicinal.planning.parameter_tables import PARAMETERS

    fields = [field for table in PARAMETERS.values() for field in get_parameters(table)]
    return {field.name: field for field in fields}


@functools.cache
def _create_options(without_option: tuple[str, ...]) -> list[Any]:
    """Return click's options of all plan parameters except those named in `without_option`."""
    names = [name for name in _get_plan_parameters() if name not in without_option]

    # Typer creates click options from a function's parameters only.
    def accept_plan(**plan: str | list[str] | None) -> None: ...

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(name, keyword, default=None, annotation=_annotate_option(name))
        for name in names
    ]
    accept_plan.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    accept_plan.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app = typer.Typer(add_completion=False)
    app.command()(accept_plan)
    option_of = {option.name: option for option in typer.main.get_command(app).params}
    return [option_of[name] for name in names]


def _annotate_option(name: str) -> Any:
    """Return the type annotation of the option of the plan parameter `name`, with its help text.

    That is the first sentence of the parameter's documentation, with its default. The type is a
    list for an option that may be repeated.
    """
    from vicinal.parameters import Unless

    parameter = _get_plan_parameters()[name]
    check = parameter.metadata["check"]
    hint: Any = list[str] | None if check.repeatable else str | None
    if isinstance(check, Unless):
        check = check.check  # the automatic value is the default, which the help shows separately
    documentation = parameter.metadata["doc"].replace("`", "")
    first_sentence = re.split(r"\.(?: (?=[A-Z\"])|$)", documentation)[0]
    values = f" ({check.option_type})" if check.option_type else ""
    has_default = parameter.default not in (None, dataclasses.MISSING)
    default = f" [default: {parameter.default}]" if has_default else ""
    flag = "--" + FLAG_OF.get(name, name).replace("_", "-")
    help_text = f"{first_sentence}{values}.{default}"
    return Annotated[hint, Option(flag, help=help_text, metavar=check.metavar, show_default=False)]
