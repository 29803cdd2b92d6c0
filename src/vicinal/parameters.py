"""Declarations of estimator parameters: each parameter is a field of a table, with its check.

A table is a dataclass of fields made by :func:`parameter`, which state name, type, check, default
and meaning of each parameter. An estimator has its tables as base classes, which give it
``__init__``, so that scikit-learn, editors and type checkers see every parameter;
:func:`document_parameters` writes them into its docstring. The estimator's settings have the same
tables as base classes: the same names with checked values. Command-line options and tests with
invalid values use the tables, too. All parameters are public.
"""

import dataclasses
import inspect
import numbers
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
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
    get_args,
    get_origin,
    overload,
)

import numpy as np

from vicinal import checks as _checks
from vicinal.errors import InvalidInput

Number = TypeVar("Number", int, float)
InputType = TypeVar("InputType")
CheckedType = TypeVar("CheckedType")
Value = TypeVar("Value")
AnyClass = TypeVar("AnyClass", bound=type)

REQUIRED = dataclasses.MISSING
"""Placeholder for the default of a parameter that must be given."""

_DOC_WIDTH = 100  # characters of a line in generated docstrings, as in the source

_MAX_RANGE = 10_000  # largest number of class names that a range such as "0-9" may denote

AUTO = "auto"
"""Value of a parameter that is chosen automatically."""


class Check(ABC):
    """Requirement on a parameter. Calling it returns the checked value or raises InvalidInput."""

    @property
    @abstractmethod
    def type_name(self) -> str:
        """The type as text, as numpydoc has it after the parameter's name: "int", "float"."""

    metavar: ClassVar[str] = "<str>"

    @abstractmethod
    def __call__(self, name: str, value: Any) -> Any:
        """Return `value` in the type used internally; InvalidInput names the parameter `name`."""

    @property
    def option_type(self) -> str:
        """Description of the values of a command-line option; empty if its metavar is enough."""
        return ""

    @property
    def repeatable(self) -> bool:
        """Whether the option takes a list and may be repeated, once for each item."""
        return False

    def parse_text(self, text: str) -> Any:
        """Return the value that the `text` of a command-line option means, before it is checked.

        Text without such a meaning is returned unchanged, and the check then refuses it.
        """
        return text

    def parse_items(self, texts: Sequence[str]) -> Any:
        """Return the value of a repeatable option from the `texts` of its repetitions."""
        raise NotImplementedError

    def parse_option(self, texts: Sequence[str]) -> Any:
        """Return the unchecked value of an option from the texts of its repetitions, >= 1."""
        return self.parse_text(texts[0]) if len(texts) == 1 else self.parse_items(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Real(Check):
    """A finite number; bounds `above`, `below` are exclusive, `minimum`, `maximum` inclusive."""

    above: float | None = None
    below: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    metavar: ClassVar[str] = "<float>"
    type_name = "float"

    def parse_text(self, text: str) -> float | str:
        """Return the number in a text as a float, or the text if it is no number."""
        return parse_number_or_text(text, float)

    def __call__(self, name: str, value: object) -> float:
        """Return `value` as a float; raise InvalidInput, naming `name`, if it is out of bounds."""
        return _checks.check_real(name, value, **dataclasses.asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroOrReal(Real):
    """Zero, which switches something off, or a finite number within the bounds."""

    def __call__(self, name: str, value: object) -> float:
        """Return `value` as a float; raise InvalidInput unless 0 or within bounds."""
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)
        return 0.0 if is_number and value == 0 else Real.__call__(self, name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer(Check):
    """An integer in ``minimum .. maximum``."""

    minimum: int
    maximum: int | None = None

    metavar: ClassVar[str] = "<int>"
    type_name = "int"

    def parse_text(self, text: str) -> int | str:
        """Return the integer in a text as an int, or the text if it is no integer."""
        return parse_number_or_text(text, int)

    def __call__(self, name: str, value: object) -> int:
        """Return `value` as an int; raise InvalidInput, naming `name`, if it is out of bounds."""
        return _checks.check_integer(name, value, minimum=self.minimum, maximum=self.maximum)


@dataclass(frozen=True, slots=True)
class Choice(Check):
    """One of several words."""

    options: Sequence[str]

    @property
    def type_name(self) -> str:
        """All words as a set in braces, as numpydoc has it."""
        return "{" + ", ".join(f'"{option}"' for option in self.options) + "}"

    @property
    def option_type(self) -> str:
        """All words, joined by "or"."""
        return " or ".join(self.options)

    def __call__(self, name: str, value: object) -> str:
        """Return `value`; raise InvalidInput, naming `name`, if it is none of the words."""
        return _checks.check_choice(name, value, self.options)


@dataclass(frozen=True, slots=True)
class Unless(Check):
    """Another check, with an additional value that selects an automatic choice.

    `automatic`: the additional value, None or a word; the checked value is then None. `check`: the
    requirement on all other values.
    """

    automatic: str | None
    check: Check

    @property
    def type_name(self) -> str:
        """The type of the other check as text, with "optional" or the additional word."""
        if self.automatic is None:
            return f"{self.check.type_name}, optional"
        return f'{self.check.type_name} or "{self.automatic}"'

    @property
    def repeatable(self) -> bool:
        """Whether the other check's option takes a list and may be repeated."""
        return self.check.repeatable

    def parse_text(self, text: str) -> Any:
        """Return the additional value unchanged, or the value read by the other check."""
        return text if text == self.automatic else self.check.parse_text(text)

    def parse_items(self, texts: Sequence[str]) -> Any:
        """Return the value that the other check reads from the texts of its repetitions."""
        return self.check.parse_items(texts)

    def __call__(self, name: str, value: object) -> Any:
        """Return None for the additional value, or the value checked by the other check."""
        if value is None and self.automatic is None:
            return None
        if isinstance(value, str) and value == self.automatic:
            return None
        return self.check(name, value)


@dataclass(frozen=True, slots=True)
class Checked(Check):
    """Requirement given by a function of name and value, which returns the checked value."""

    function: Callable[[str, Any], Any]
    type_name: str

    def __call__(self, name: str, value: object) -> Any:
        """Return the value that the function returns for `name` and `value`."""
        return self.function(name, value)


@dataclass(frozen=True, slots=True)
class ClassNames(Check):
    """All class names: at least two different integers or strings."""

    type_name = "sequence of int or str"
    option_type = "separated by commas or semicolons; or repeat the option, for each name once"
    repeatable = True

    def parse_text(self, text: str) -> list[Any]:
        """Return the names in a list separated by commas or semicolons; integers if all are.

        A range such as "0-9" stands for all integers from the first to the last.
        """
        first_text, _, last_text = text.partition("-")
        first = _checks.parse_label(first_text)
        last = _checks.parse_label(last_text)
        if type(first) is int and type(last) is int and 0 <= last - first < _MAX_RANGE:
            return list(range(first, last + 1))
        return self.parse_items(split_list(text))

    def parse_items(self, texts: Sequence[str]) -> list[Any]:
        """Return the names in `texts`, one in each, commas included; as integers if all are.

        Integers are those that labels in files are read as (:func:`~vicinal.checks.parse_label`).
        """
        names = [text.strip() for text in texts]
        meanings = [_checks.parse_label(name) for name in names]
        return meanings if all(type(meaning) is int for meaning in meanings) else names

    def __call__(self, name: str, value: object) -> Any:
        """Return the class names `value` as an array (c,); raise InvalidInput for other values."""
        return _checks.check_class_names(value, name)


def parse_number_or_text(text: str, kind: Callable[[str], Number]) -> Number | str:
    """Return the number in a text, of type `kind`, or the text, which checks of numbers refuse."""
    try:
        return kind(text)
    except ValueError:
        return text


def split_list(text: str) -> list[str]:
    """Return the items of a list separated by semicolons or, if there are none, by commas."""
    return [item.strip() for item in text.split(";" if ";" in text else ",")]


def parse_name_list(texts: Sequence[str]) -> list[str]:
    """Return the names in the texts of an option, given once with a list or once for each name."""
    return split_list(texts[0]) if len(texts) == 1 else [text.strip() for text in texts]


SEED = Unless(None, Integer(minimum=0))
"""The check of an optional seed of pseudo-random numbers."""


class CheckedParameters:
    """Checked parameters (*settings*). A subclass also has the tables of an estimator as bases."""

    @classmethod
    def from_estimator(cls, estimator: object) -> Self:
        """Return an estimator's checked parameters; raise InvalidInput if one is invalid."""
        return cls.from_values({name: getattr(estimator, name) for name, _ in get_checks(cls)})

    @classmethod
    def from_values(cls, values: Mapping[str, Any], **unchecked_attributes: Any) -> Self:
        """Return the settings with checked parameter values, and defaults for missing ones.

        `values`: by parameter name. `unchecked_attributes`: further attributes of the settings,
        which are set without a check. Raises InvalidInput for an invalid value.
        """
        input_values = {
            declared.name: values.get(declared.name, declared.default)
            for declared in get_parameters(cls)
        }
        missing = next((name for name, value in input_values.items() if value is REQUIRED), None)
        if missing is not None:
            raise InvalidInput(f"The {missing!r} parameter must be given.")
        settings = cls.__new__(cls)
        checked_values = {name: check(name, input_values[name]) for name, check in get_checks(cls)}
        vars(settings).update(checked_values)
        vars(settings).update(unchecked_attributes)
        settings.complete_and_check()
        return settings

    def changed(self, **changes: Any) -> Self:
        """Return a copy of the settings with `changes`, values by name, which are not checked."""
        settings = copy(self)
        vars(settings).update(changes)
        return settings

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Raise AttributeError, since settings are immutable."""
        raise AttributeError(
            f"CheckedParameters do not change; make others with changed({name}=...)."
        )

    def complete_and_check(self) -> None:
        """Set values that depend on others; raise InvalidInput if parameters exclude each other."""


class Given(Generic[InputType, CheckedType]):
    """Type of a parameter that differs in type between the estimator and its checked settings.

    For type checkers only; at run time it is an ordinary attribute.
    """

    @overload
    def __get__(self, instance: CheckedParameters, owner: object) -> CheckedType: ...
    @overload
    def __get__(self, instance: object, owner: object) -> InputType: ...
    def __get__(self, instance: object, owner: object) -> Any:
        """Declare the type of a value that is read: checked in settings, else as passed."""
        raise NotImplementedError

    def __set__(self, instance: object, value: InputType) -> None:
        """Declare the type of a value that is set: that which callers may pass."""
        raise NotImplementedError


Auto: TypeAlias = Given[Value | str, Value | None]
"""Type of a parameter that is a value or a word; for a word, the settings contain None."""


def parameter(check: Check, *, default: Any = REQUIRED, doc: str, kw_only: bool = True) -> Any:
    """Return the declaration of a parameter, a field of a parameter table.

    `check`: the requirement on the value. `default`: omitted for a parameter that must be given.
    `doc`: description for numpydoc, whose first sentence is the help of the command-line option.
    `kw_only`: whether the parameter can be passed by name only.
    """
    return field(
        default=default, kw_only=kw_only, metadata={"check": check, "doc": " ".join(doc.split())}
    )


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(parameter,))
def parameter_table(cls: AnyClass) -> AnyClass:
    """Class decorator: turn a class of parameter declarations into a parameter table.

    The table is a keyword-only dataclass without generated comparison and repr. Annotations of its
    `__init__` are replaced by the types that callers may pass.
    """
    decorated = dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)  # type: ignore[var-annotated]
    annotations = vars(decorated)["__init__"].__annotations__
    annotations.update({name: _select_input_type(kind) for name, kind in annotations.items()})
    return decorated  # type: ignore[return-value]


def _select_input_type(annotation: Any) -> Any:
    """Return the type that callers may pass: A of an `annotation` Given[A, B], or `annotation`."""
    return get_args(annotation)[0] if get_origin(annotation) is Given else annotation


def get_parameters(cls: type) -> list[dataclasses.Field[Any]]:
    """Return the parameters of a class with tables, in the order of its signature."""
    fields = dataclasses.fields(cls)
    positional = [declared for declared in fields if not declared.kw_only]
    return positional + [declared for declared in fields if declared.kw_only]


def get_checks(cls: type) -> list[tuple[str, Check]]:
    """Return the name and the check of every parameter of a class with tables."""
    return [(declared.name, declared.metadata["check"]) for declared in get_parameters(cls)]


def document_parameters(cls: AnyClass) -> AnyClass:
    """Class decorator: insert an estimator's parameters into its docstring before attributes.

    The parameters are those of the class's tables, described as in numpydoc.
    """
    introduction, attributes = inspect.cleandoc(cls.__doc__ or "").split("Attributes\n-", 1)
    lines = []
    for declared in get_parameters(cls):
        default = declared.default
        default_text = f'"{default}"' if isinstance(default, str) else repr(default)
        shown_default = "" if default in (REQUIRED, None) else f", default={default_text}"
        lines.append(f"{declared.name} : {declared.metadata['check'].type_name}{shown_default}")
        text = declared.metadata["doc"]
        lines.append(textwrap.indent(textwrap.fill(text, _DOC_WIDTH - 4), "    "))
    parameters = "\n".join(lines)
    signature: Any = inspect.getattr_static(cls, "__init__")
    signature.__qualname__ = f"{cls.__name__}.__init__"  # name in errors about wrong arguments
    cls.__doc__ = f"{introduction}Parameters\n----------\n{parameters}\n\nAttributes\n-{attributes}"
    return cls
