"""The kinds of targets, each once."""

from collections.abc import Mapping
from typing import Any

from vicinal.errors import InvalidInput
from vicinal.targets.classes import Classes
from vicinal.targets.label_sets import LabelSets
from vicinal.targets.numbers import Numbers
from vicinal.targets.target import Target

KINDS: dict[str, type[Target]] = {each.kind: each for each in (Classes, Numbers, LabelSets)}
"""Kinds of targets, by the parameter that declares each."""


def declared_target(parameters: Mapping[str, Any]) -> Target:
    """Return what all parameters of an estimator say of its targets.

    Raises InvalidInput if none of the kinds is declared, or several are.
    """
    kinds = [kind for kind in KINDS if parameters.get(kind) is not None]
    if len(kinds) != 1:
        raise InvalidInput(
            "The 'classes' parameter must name all classes. For numbers give the 'bounds' "
            "parameter in its place, and for several labels per record the 'labels' parameter."
        )
    return KINDS[kinds[0]].checked(parameters)
