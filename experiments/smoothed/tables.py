"""The small public tables that the figures and the reference values need."""

import csv
import json
from importlib.resources import files
from typing import Any

POPULAR_VOTE = "us_president_popular_vote_1920_2020.csv"
ELECTORAL_UNITS = "us_president_2020_electoral_units.csv"


def election_table(name: str) -> list[dict[str, str]]:
    """Return the rows of one of the tables; data/README.md names their sources."""
    return list(csv.DictReader(_text(name).splitlines()))


def reference_entries() -> list[dict[str, Any]]:
    """Return the reference values: id, inputs, value, and whether it is exact or a float."""
    return json.loads(_text("reference.json"))["entries"]  # type: ignore[no-any-return]


def _text(name: str) -> str:
    return (files("experiments.smoothed") / "data" / name).read_text(encoding="utf-8")
