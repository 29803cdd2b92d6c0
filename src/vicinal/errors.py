"""Exceptions and warnings of vicinal. Messages name the problem, the bound and the remedy.

Messages never contain private information: no features, labels, ids, budgets, charges or counts of
records (architecture.md, invariant 5).
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class VicinalError(Exception):
    """Base of every error that is raised on purpose."""


class InvalidInput(VicinalError, ValueError):
    """An argument is invalid; nothing was changed and no budget was charged."""


class InvalidType(InvalidInput, TypeError):
    """An argument contains objects of an unsupported type; a TypeError for scikit-learn."""


class UnusableRows(InvalidInput):
    """Rows of a table do not match its schema; the message names columns and contains no value.

    `located`: the message with row numbers, from 1, for the provider of the rows. `for_clients`:
    that message without advice to change the schema, for clients of a service.
    """

    def __init__(self, message: str, located: str, for_clients: str | None = None) -> None:
        super().__init__(message, located, for_clients)
        self.located = located
        self.for_clients = located if for_clients is None else for_clients

    def __str__(self) -> str:
        """Return the message without row numbers."""
        return str(self.args[0])


class OutputFailed(InvalidInput):
    """An output could not be written after the work was done; charged answers are stored."""


class OtherFormat(InvalidInput):
    """A file has a format that this version cannot read."""


class TooLittleMemory(VicinalError, MemoryError):
    """A file needs more memory than there is. No InvalidInput or ValueError: it is not damaged."""


class KeyReused(InvalidInput):
    """An idempotency key was used before for a different request."""


class NoCoverage(InvalidInput):
    """Sets or intervals were requested of an audience that has no calibration for them."""


class NoSubjectIds(InvalidInput):
    """The records have no subject ids, so subjects cannot be addressed by id."""


class PrivacyRefused(VicinalError, RuntimeError):
    """The call would violate the stated guarantee, so it was not executed."""


class StoreInUse(PrivacyRefused):
    """Another process has opened the store. Close it: two could charge the same budgets."""


class StoreOutdated(PrivacyRefused):
    """A store, or a part of it, is outdated or from elsewhere, so charges are missing in it.

    Restore the current files; or accept the loss, which exhausts every budget permanently.
    """


class IdsAlike(PrivacyRefused):
    """New ids differ from known or other new ids in spelling only; none was added."""


class MissingExtra(VicinalError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""


class StorageFailed(VicinalError, OSError):
    """A disk or database failed; no query was answered, and the store must be reopened."""


class StoreDamaged(StorageFailed):
    """A file is missing, changed or damaged; reopening does not help. Restore a backup."""


class ShardMissing(StorageFailed):
    """A shard did not respond, so a block of queries was refused; its charges remain.

    If you retry the same queries before sending new ones, they are not charged twice. A committed
    change of the data is completed by the next call.

    Examples
    --------
    >>> from vicinal.errors import ShardMissing, VicinalError
    >>> issubclass(ShardMissing, VicinalError)
    True
    """


class ShardDamaged(ShardMissing):
    """A shard is damaged, so a block of queries was refused at once. Repair the shard."""


class DamagedWitness(StoreDamaged):
    """The witness file, which records the last state of a store, was changed or damaged."""


class ShardUnreachable(VicinalError):
    """A shard cannot be reached at present; it may or may not have completed its task.

    The message is empty or gives the reason, without private information. A coordinator raises
    :class:`ShardMissing` instead.
    """


class PrivacyWarning(UserWarning):
    """A guarantee differs from the one that the caller may expect, or an assumption fails."""


class SmallDataWarning(UserWarning):
    """A plan has few records for its queries and epsilon, so noise decides many answers."""


_PASSED_MODULES = {"vicinal", "sklearn", "joblib", "functools", "importlib"}
"""Packages between a caller and a warning of this package: its own modules, scikit-learn, which
calls its estimators, and modules through which both are called or imported."""


def warn_caller(message: str, kind: type[Warning] = UserWarning) -> None:
    """Issue a warning at the line of code that called this package, perhaps through scikit-learn.

    `message`: its text. `kind`: its class. Python shows a warning once for each line.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _PASSED_MODULES:
            break
        frame = frame.f_back
    # Not warnings.warn: its levels count no frames of imports.
    warnings.warn_explicit(
        message,
        kind,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


@contextmanager
def redirect_warnings(report: Callable[[str], None]) -> Iterator[None]:
    """Pass the text of every shown warning to `report`, on one line and without its location.

    Each UserWarning is shown once for each location; other warnings as the filters in force
    determine. The location is in the code of the caller, such as typer's, or of a worker thread.
    Affects all threads.
    """

    def report_warning(message: Warning | str, *_: object, **__: object) -> None:
        """Report a warning without the location that the other arguments state."""
        report(" ".join(str(message).split()))

    with warnings.catch_warnings():
        # Not by module: warnings are attributed to the caller.
        warnings.filterwarnings("default", category=UserWarning)
        warnings.showwarning = report_warning
        yield
