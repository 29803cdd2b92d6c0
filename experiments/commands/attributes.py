"""`market-attributes`: the tau-approximation on true labels, made features."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.commands.options import OUT, with_notes, write_table
from vicinal.cli import Json, output_folder, progress, write_file

NAME = "market-attributes"

NOTE = (
    "Labels are those of Market-1501, features are MADE: a random linear picture of the attributes "
    "with noise, 17 images a person. What tau clips and what the plan costs are exact; accuracies "
    "depend on made features and say nothing of images. A record is an image, as in the paper: "
    "the guarantee protects an image, not a person with 17. Simulated with seeded noise, without a "
    "guarantee. sigma and gamma of the paper are from our notes; what would explain its printed "
    "epsilons stands in accounting.md. k is ours."
)

_TAUS = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)


def market_attributes(
    data: Annotated[Path, typer.Option(help="CSV of split, identity, age and attributes.")],
    neighbors: Annotated[int, typer.Option(help="How many vote.", min=1)] = 500,
    runs: Annotated[int, typer.Option(help="Made features and seeds.", min=1)] = 3,
    json: Json = False,
    out: Annotated[Path, typer.Option(help="Folder for table and plot.")] = OUT,
) -> None:
    """Clip the votes of records with many labels, as ZYCW20's Table 3 does on Market-1501."""
    from experiments.students import attributes as wing
    from experiments.students import attributes_figures as figures

    start = time.perf_counter()
    folder = output_folder(out)
    people = wing.Attributes.load(data)
    gammas = tuple(wing.PRINTED)
    with progress(silent=json) as begin:
        step = begin("taus", len(_TAUS) * len(gammas))
        made = [wing.Made.of(people, run) for run in range(runs)]
        points = []
        for tau in _TAUS:
            for gamma in gammas:
                points.append(wing.point(made, neighbors, tau, gamma))
                step(1)
    plain, blind = wing.not_private(made, neighbors), wing.blind(people, made)
    clipped = [wing.Clipped.by(people.private, tau) for tau in _TAUS]
    stated = [point for point in points if point.tau == wing.TAU]
    alone = [wing.individual(made, point.epsilon["best"]) for point in stated]
    parts = (
        figures.clipping_text(clipped),
        figures.epsilon_text(stated),
        figures.accuracy_text(points, plain, blind),
        figures.individual_text(stated, alone),
        figures.attribute_text(people, stated, plain, blind),
    )
    result = {
        **_about(neighbors, runs, time.perf_counter() - start),
        "clipped": [{n: getattr(c, n) for n in wing.Clipped.__slots__} for c in clipped],
        "printed": {str(gamma): epsilon for gamma, epsilon in wing.PRINTED.items()},
        "points": [point.to_dict(people.names) for point in points],
        "individual": alone,
        "no_privacy": dict(zip(people.names, plain.round(4).tolist(), strict=True)),
        "commonest": dict(zip(people.names, blind.round(4).tolist(), strict=True)),
    }
    picture = figures.tau_picture(points, float(plain.mean()), float(blind.mean()))
    write_file(folder / f"{NAME}.png", picture)
    write_table(folder, NAME, result, with_notes("\n\n".join(parts), NOTE), json=json)


def _about(neighbors: int, runs: int, seconds: float) -> dict[str, Any]:
    from vicinal import __version__

    return {
        "experiment": NAME,
        "simulation": True,
        "features": "made",
        "note": NOTE,
        "k": neighbors,
        "runs": runs,
        "seconds": round(seconds, 1),
        "version": __version__,
    }
