"""Parameters of estimators, each declared once: as a field of a table.

A table is a dataclass of fields made by :func:`parameter`: name, type, check, default and what it
means. An estimator has its tables as bases, which give it ``__init__``, so that scikit-learn,
editors and type checkers see every parameter; :func:`documented` writes them into its docstring.
The estimator's settings have the same tables as bases: the same names with checked values. Options
of the command line and tests with bad values go by the tables, too. All parameters are public.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, Self, TypeAlias, TypeVar, dataclass_transform, overload

import numpy as np

from vicinal._arrays import AnyArray
from vicinal.planning._parameter_checks import Check, ClassNames

REQUIRED = dataclasses.MISSING
"""In place of a default: the parameter must be given."""

Passed = TypeVar("Passed")
Checked = TypeVar("Checked")
Value = TypeVar("Value")
AnyClass = TypeVar("AnyClass", bound=type)

_DOC_WIDTH = 100


class Settings:
    """Checked parameters: a subclass has the tables of an estimator as further bases."""

    @classmethod
    def of(cls, estimator: object) -> Self:
        """Check an estimator's parameters; raise InvalidInput naming the first bad one."""
        checked = {name: check(name, getattr(estimator, name)) for name, check in checks(cls)}
        settings = cls.__new__(cls)
        vars(settings).update(checked)
        settings.check_together()
        return settings

    def changed(self, **changes: Any) -> Self:
        """Return the same settings with some values changed."""
        settings = copy(self)
        vars(settings).update(changes)
        return settings

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse: settings do not change."""
        raise AttributeError(f"Settings do not change; make others with changed({name}=...).")

    def check_together(self) -> None:
        """Raise InvalidInput where parameters that are fine alone do not go together."""

    @property
    def class_names(self) -> AnyArray:
        """Names of classes, (c,); none where there are no classes."""
        return np.zeros(0, dtype=np.int64)


class Given(Generic[Passed, Checked]):
    """The type of a parameter that settings keep in another form than it was passed in.

    For type checkers only: at run time it is an ordinary attribute.
    """

    @overload
    def __get__(self, instance: Settings, owner: object) -> Checked: ...
    @overload
    def __get__(self, instance: object, owner: object) -> Passed: ...
    def __get__(self, instance: object, owner: object) -> Any:
        """Return the value: checked in settings, as it was passed in an estimator."""
        raise NotImplementedError

    def __set__(self, instance: object, value: Passed) -> None:
        """Take what is passed."""
        raise NotImplementedError


Auto: TypeAlias = Given[Value | str, Value | None]
"""A value, or a word in its place, for which settings have None."""


def parameter(check: Check, *, default: Any = REQUIRED, doc: str, kw_only: bool = True) -> Any:
    """Return the declaration of a parameter: a field of a table.

    - `check`: what it must be.
    - `default`: left out for a parameter that must be given.
    - `doc`: what it means, in numpydoc. The first sentence is the help of a command's option.
    - `kw_only`: whether it can be passed by name only.
    """
    return field(
        default=default, kw_only=kw_only, metadata={"check": check, "doc": " ".join(doc.split())}
    )


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def table(cls: AnyClass) -> AnyClass:
    """Make a class a table of parameters: a dataclass that is printed and compared as before."""
    decorated = dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)  # type: ignore[var-annotated]
    annotations = vars(decorated)["__init__"].__annotations__
    annotations.update({name: _passed(str(kind)) for name, kind in annotations.items()})
    return decorated  # type: ignore[return-value]


def _passed(kind: str) -> str:
    """Return an annotation as a caller needs it: what is passed, and not what settings keep."""
    outer, _, inner = kind.removesuffix("]").partition("[")
    if outer == "Auto":
        return f"{inner} | str"
    depths = itertools.accumulate((c == "[") - (c == "]") for c in inner)
    comma = next((i for i, d in enumerate(depths) if d == 0 and inner[i] == ","), None)
    return inner[:comma] if outer == "Given" else kind


def declared(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the parameters of a class with tables, in the order of its signature."""
    fields = dataclasses.fields(cls)
    return [each for each in fields if not each.kw_only] + [each for each in fields if each.kw_only]


def checks(cls: type) -> list[tuple[str, Check]]:
    """Return the name and the check of every parameter."""
    return [(each.name, each.metadata["check"]) for each in declared(cls)]


def documented(cls: AnyClass) -> AnyClass:
    """Write the parameters of an estimator into its docstring, before its attributes."""
    before, after = inspect.cleandoc(cls.__doc__ or "").split("Attributes\n-", 1)
    lines = "\n".join(line for each in declared(cls) for line in _described(each))
    signature: Any = inspect.getattr_static(cls, "__init__")
    signature.__qualname__ = f"{cls.__name__}.__init__"  # wrong arguments are told by this name
    cls.__doc__ = f"{before}Parameters\n----------\n{lines}\n\nAttributes\n-{after}"
    return cls


def _described(each: dataclasses.Field[Any]) -> Iterator[str]:
    yield f"{each.name} : {each.metadata['check'].type_name}"
    yield textwrap.fill(
        each.metadata["doc"], _DOC_WIDTH, initial_indent="    ", subsequent_indent="    "
    )


@table
class ClassesParameter:
    """The class names of a classifier."""

    classes: Given[Iterable[Any], AnyArray] = parameter(
        ClassNames(),
        kw_only=False,
        doc="""All class names. Public, and an input: they are never read off the private
        labels.""",
    )
