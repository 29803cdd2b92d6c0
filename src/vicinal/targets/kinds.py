"""The table of target kinds, and the construction of a target from estimator parameters."""

from collections.abc import Mapping
from typing import Any

from vicinal.errors import InvalidInput
from vicinal.targets.classes import Classes
from vicinal.targets.label_sets import LabelSets
from vicinal.targets.numbers import Numbers
from vicinal.targets.target import Target

KINDS: dict[str, type[Target]] = {target.kind: target for target in (Classes, Numbers, LabelSets)}
"""Target classes by the name of the parameter that declares each kind."""


def declared_target(parameters: Mapping[str, Any]) -> Target:
    """Return the checked target that the parameters of an estimator declare.

    `parameters`: values of all parameters by name; exactly one of the names in `KINDS` must have a
    value other than None, else InvalidInput is raised.
    """
    declared_kinds = [kind for kind in KINDS if parameters.get(kind) is not None]
    if len(declared_kinds) != 1:
        raise InvalidInput(
            "The 'classes' parameter must name all classes. For numbers give the 'bounds' "
            "parameter in its place, and for several labels per record the 'labels' parameter."
        )
    return KINDS[declared_kinds[0]].from_values(parameters)
