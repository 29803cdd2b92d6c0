"""One error tree. Every message says what is wrong, which bound was broken and what to do.

Messages never hold anything private: no features, labels, ids, budgets, charges or counts of
records (architecture.md, invariant 5).
"""


class VicinalError(Exception):
    """Base of every error that is raised on purpose."""


class InvalidInput(VicinalError, ValueError):
    """An argument is unusable; nothing was changed and nothing was spent."""


class InvalidType(InvalidInput, TypeError):
    """An argument holds objects of a type that cannot be used, as scikit-learn's TypeErrors say."""


class UnusableRows(InvalidInput):
    """Rows of a table do not fit its schema; the message names columns and repeats no value.

    `located`: the same with the numbers of rows, from 1, for whoever sent them.
    """

    def __init__(self, message: str, located: str) -> None:
        super().__init__(message, located)
        self.located = located

    def __str__(self) -> str:
        return str(self.args[0])


class OtherFormat(InvalidInput):
    """A file has another format than the one that this version reads."""


class KeyReused(InvalidInput):
    """An idempotency key was used before, for something else."""


class NoSubjectIds(InvalidInput):
    """Records came without subject ids, so nobody can be recognised by one."""


class PrivacyRefused(VicinalError, RuntimeError):
    """The call would break the stated guarantee, so it was not carried out."""


class StoreInUse(PrivacyRefused):
    """Another process has the store open; two could spend the same budgets. Close that one."""


class StoreOutdated(PrivacyRefused):
    """A store, or a part of it, is an old copy or another one: it does not know what was charged.

    Bring back what belongs there; or accept the loss, which spends every budget for good.
    """


class IdsAlike(PrivacyRefused):
    """New ids differ from known ones, or others, by zeros, case or blanks only; none was added."""


class MissingExtra(VicinalError, ImportError):
    """An optional dependency is not installed; the message names the extra to install."""


class StorageFailed(VicinalError, OSError):
    """A disk or database failed; nothing was answered, and the store must be opened again."""


class StoreDamaged(StorageFailed):
    """A file is missing, changed or damaged: opening it again does not help. Restore a backup."""


class ShardMissing(StorageFailed):
    """A shard did not answer, so a block was refused; subjects charged for it stay charged.

    If you retry the same queries before sending new ones, they are not charged twice. A change of
    the data that was decided is finished by the next call.

    Examples
    --------
    >>> from vicinal.errors import ShardMissing, VicinalError
    >>> issubclass(ShardMissing, VicinalError)
    True
    """


class ShardDamaged(ShardMissing):
    """A shard is damaged, so a block was refused at once; repair it, and the next is answered."""


class DamagedWitness(StoreDamaged):
    """The file that remembers how far a store came was changed or damaged."""


class ShardUnreachable(VicinalError):
    """A shard cannot be reached at present; it may have done its task, or not.

    Its message says why in public words, or nothing. Callers of a coordinator see
    :class:`ShardMissing` instead.
    """


class PrivacyWarning(UserWarning):
    """The guarantee still holds, but perhaps not the one that the caller has in mind."""
