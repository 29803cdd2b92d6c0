"""`tightness`: how near the best attack known comes to every claim."""

from __future__ import annotations

from typing import Annotated

import typer

from experiments.commands.options import OUT, Out, with_notes, write_table
from vicinal.cli._options import Epsilon, Json
from vicinal.cli._output import output_folder
from vicinal.errors import InvalidInput

TIGHTNESS = "tightness"

TIGHTNESS_NOTE = (
    "Installed code, exact noise, no versions broken on purpose. Claim and lower bound as a "
    "Gaussian shift mu at the test that was made, the lower bound wrong with probability at most "
    "1e-6; epsilon of both at delta 1e-5. Ind-KNN at the epsilon asked for; the other mechanisms "
    "in the settings of `vicinal audit`. Students and exported models are made of released answers "
    "alone, so they are no further rows."
)


def tightness(
    runs: Annotated[int, typer.Option(help="Of each world of each attack.", min=100)] = 1_000_000,
    seconds: Annotated[float, typer.Option(help="For one attack, at most.")] = 600.0,
    only: Annotated[str | None, typer.Option(help="Attacks, comma-separated.")] = None,
    classes: Annotated[int, typer.Option(help="Of Ind-KNN.", min=2, max=100)] = 10,
    epsilon: Epsilon = 1.0,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """For every mechanism: its claim, the best lower bound, their ratio and the time it took."""
    from experiments.audits import tightness as made

    makers = made.cases(classes, epsilon)
    names = list(makers) if only is None else [name.strip() for name in only.split(",")]
    if not set(names) <= set(makers):
        raise InvalidInput(f"The 'only' parameter must name attacks among: {', '.join(makers)}.")
    folder = output_folder(out)
    lines, results = [made.text_row("")], {}
    for name, found in made.measured({name: makers[name] for name in names}, runs, seconds):
        lines.append(made.text_row(name, found))
        results[name] = found.to_dict()
        typer.echo(lines[-1], err=True)
    result = {"experiment": TIGHTNESS, "note": TIGHTNESS_NOTE, "rows": results}
    write_table(folder, TIGHTNESS, result, with_notes("\n".join(lines), TIGHTNESS_NOTE), json=json)
