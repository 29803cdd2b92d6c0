"""Parameters of estimators, each declared once: as a field of a table, with what it must be.

A table is a dataclass of fields made by :func:`parameter`: name, type, check, default and what it
means. An estimator has its tables as bases, which give it ``__init__``, so that scikit-learn,
editors and type checkers see every parameter; :func:`document_parameters` writes them into its
docstring.
The estimator's settings have the same tables as bases: the same names with checked values. Options
of the command line and tests with bad values go by the tables, too. All parameters are public.
"""

import dataclasses
import inspect
import itertools
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import (
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
)

from vicinal import checks as _checks
from vicinal.errors import InvalidInput

Number = TypeVar("Number", int, float)
Passed = TypeVar("Passed")
Kept = TypeVar("Kept")
Value = TypeVar("Value")
AnyClass = TypeVar("AnyClass", bound=type)

REQUIRED = dataclasses.MISSING
"""In place of a default: the parameter must be given."""

_DOC_WIDTH = 100

AUTO = "auto"


class Check(ABC):
    """What a parameter must be: calling it returns the checked value or raises InvalidInput.

    `type_name`: the type, as numpydoc writes it after the parameter's name.
    """

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The type, as numpydoc writes it."""

    metavar: ClassVar[str] = "<str>"

    @abstractmethod
    def __call__(self, name: str, value: Any) -> Any:
        """Return `value` in the type that the code works with."""

    @property
    def option_type(self) -> str:
        """What an option on the command line takes, where its metavar does not say it."""
        return ""

    @property
    def repeatable(self) -> bool:
        """Whether the option takes a list, and may be repeated to give each item by itself."""
        return False

    def parsed(self, text: str) -> Any:
        """Return what an option on the command line passes; what cannot be read stays a text."""
        return text

    def parsed_items(self, texts: Sequence[str]) -> Any:
        """Return what a repeatable option passes that was given several times."""
        raise NotImplementedError

    def parsed_option(self, texts: Sequence[str]) -> Any:
        """Return what an option passes that was given once or several times."""
        return self.parsed(texts[0]) if len(texts) == 1 else self.parsed_items(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Real(Check):
    """A finite number; `above` and `below` are strict bounds, `least` and `most` are not."""

    above: float | None = None
    below: float | None = None
    least: float | None = None
    most: float | None = None

    metavar: ClassVar[str] = "<float>"
    type_name = "float"

    def parsed(self, text: str) -> float | str:
        """Return a number."""
        return number_or_text(text, float)

    def __call__(self, name: str, value: object) -> float:
        """Return `value` as a float."""
        bounds = {"above": self.above, "below": self.below, "least": self.least, "most": self.most}
        return _checks.check_real(name, value, **bounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Check):
    """An integer in ``least .. most``."""

    least: int
    most: int | None = None

    metavar: ClassVar[str] = "<int>"
    type_name = "int"

    def parsed(self, text: str) -> int | str:
        """Return an integer."""
        return number_or_text(text, int)

    def __call__(self, name: str, value: object) -> int:
        """Return `value` as an int."""
        return _checks.check_integer(name, value, least=self.least, most=self.most)


@dataclass(frozen=True, slots=True)
class Choice(Check):
    """One of a few words."""

    options: Sequence[str]

    @property
    def type_name(self) -> str:
        """The words in braces."""
        return "{" + ", ".join(f'"{option}"' for option in self.options) + "}"

    @property
    def option_type(self) -> str:
        """The words."""
        return " or ".join(self.options)

    def __call__(self, name: str, value: object) -> str:
        """Return `value`."""
        return _checks.check_choice(name, value, self.options)


@dataclass(frozen=True, slots=True)
class Unless(Check):
    """What another check asks for, or a value in its place (None, or a word); None stands for it.

    `automatic`: the value in its place. `check`: what all other values must be.
    """

    automatic: str | None
    check: Check

    @property
    def type_name(self) -> str:
        """The type, with the value in its place."""
        if self.automatic is None:
            return f"{self.check.type_name}, optional"
        return f'{self.check.type_name} or "{self.automatic}"'

    @property
    def repeatable(self) -> bool:
        """Whether the check's option is."""
        return self.check.repeatable

    def parsed(self, text: str) -> Any:
        """Return the value in its place as it is, else what the check reads."""
        return text if text == self.automatic else self.check.parsed(text)

    def parsed_items(self, texts: Sequence[str]) -> Any:
        """Return what the check reads."""
        return self.check.parsed_items(texts)

    def __call__(self, name: str, value: object) -> Any:
        """Return None for the automatic value, else what the check returns."""
        if value is None and self.automatic is None:
            return None
        if isinstance(value, str) and value == self.automatic:
            return None
        return self.check(name, value)


@dataclass(frozen=True, slots=True)
class Checked(Check):
    """What a function takes, which gets the parameter's name and its value."""

    function: Callable[[str, Any], Any]
    type_words: str

    @property
    def type_name(self) -> str:
        """The words."""
        return self.type_words

    def __call__(self, name: str, value: object) -> Any:
        """Return what the function makes of `value`."""
        return self.function(name, value)


_MOST_COUNTED = 10_000  # names that a dash stands for


@dataclass(frozen=True, slots=True)
class ClassNames(Check):
    """All class names: at least two different integers or strings."""

    type_name = "sequence of int or str"
    option_type = "separated by commas or semicolons; or repeat the option, for each name once"
    repeatable = True

    def parsed(self, text: str) -> list[Any]:
        """Return the names of a list; integers if all of them are, as a column is read.

        Two whole numbers with a dash stand for all from the first to the last.
        """
        first, _, last = text.partition("-")
        if first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MOST_COUNTED:
            return list(range(int(first), int(last) + 1))
        return self.parsed_items(split_list(text))

    def parsed_items(self, texts: Sequence[str]) -> list[Any]:
        """Return names, which may hold commas and semicolons; integers if all of them are."""
        names = [text.strip() for text in texts]
        are_integers = all(n.removeprefix("-").isdecimal() and str(int(n)) == n for n in names)
        return [int(name) for name in names] if are_integers else list(names)

    def __call__(self, name: str, value: object) -> Any:
        """Return them as an array (c,)."""
        return _checks.class_names(value, name)


def number_or_text(text: str, kind: Callable[[str], Number]) -> Number | str:
    """Return a number that stands in a text; the text, which no check takes, if there is none."""
    try:
        return kind(text)
    except ValueError:
        return text


def split_list(text: str) -> list[str]:
    """Return the parts of a list that is separated by semicolons, or else by commas."""
    return [part.strip() for part in text.split(";" if ";" in text else ",")]


def listed_names(texts: Sequence[str]) -> list[str]:
    """Return the names of an option that was given once, as a list, or once for each name."""
    return split_list(texts[0]) if len(texts) == 1 else [text.strip() for text in texts]


SEED = Unless(None, Integer(least=0))


class Settings:
    """Checked parameters: a subclass has the tables of an estimator as further bases."""

    @classmethod
    def of(cls, estimator: object) -> Self:
        """Check an estimator's parameters; raise InvalidInput naming the first bad one."""
        return cls.checked({name: getattr(estimator, name) for name, _ in get_checks(cls)})

    @classmethod
    def checked(cls, values: Mapping[str, Any], **further: Any) -> Self:
        """Check parameters by name, with defaults for the others; `further` is kept as it is."""
        given = {each.name: values.get(each.name, each.default) for each in get_parameters(cls)}
        missing = next((name for name, value in given.items() if value is REQUIRED), None)
        if missing is not None:
            raise InvalidInput(f"The {missing!r} parameter must be given.")
        settings = cls.__new__(cls)
        vars(settings).update({name: check(name, given[name]) for name, check in get_checks(cls)})
        vars(settings).update(further)
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


class Given(Generic[Passed, Kept]):
    """The type of a parameter that settings keep in another form than it was passed in.

    For type checkers only: at run time it is an ordinary attribute.
    """

    @overload
    def __get__(self, instance: Settings, owner: object) -> Kept: ...
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
def parameter_table(cls: AnyClass) -> AnyClass:
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


def get_parameters(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the parameters of a class with tables, in the order of its signature."""
    fields = dataclasses.fields(cls)
    return [each for each in fields if not each.kw_only] + [each for each in fields if each.kw_only]


def get_checks(cls: type) -> list[tuple[str, Check]]:
    """Return the name and the check of every parameter."""
    return [(each.name, each.metadata["check"]) for each in get_parameters(cls)]


def document_parameters(cls: AnyClass) -> AnyClass:
    """Write the parameters of an estimator into its docstring, before its attributes."""
    before, after = inspect.cleandoc(cls.__doc__ or "").split("Attributes\n-", 1)
    lines = "\n".join(line for each in get_parameters(cls) for line in _described(each))
    signature: Any = inspect.getattr_static(cls, "__init__")
    signature.__qualname__ = f"{cls.__name__}.__init__"  # wrong arguments are told by this name
    cls.__doc__ = f"{before}Parameters\n----------\n{lines}\n\nAttributes\n-{after}"
    return cls


def _described(each: dataclasses.Field[Any]) -> Iterator[str]:
    kind, default = each.metadata["check"].type_name, each.default
    shown = f'"{default}"' if isinstance(default, str) else repr(default)
    yield f"{each.name} : {kind}" + ("" if default in (REQUIRED, None) else f", default={shown}")
    yield textwrap.fill(
        each.metadata["doc"], _DOC_WIDTH, initial_indent="    ", subsequent_indent="    "
    )
