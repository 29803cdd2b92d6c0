"""How many releases were planned, and so paid for; one more is refused before it is made."""

from __future__ import annotations

from vicinal import _checks
from vicinal.errors import PrivacyRefused


class ReleaseCounter:
    """Counts releases of one kind; used by one thread at a time.

    The guarantee of a plan is known before its first release and covers `planned` releases. What
    was taken is spent, whether or not the release came to an end.

    `planned`: releases that the plan was priced for. `noun`: their name, as in "screenings".
    """

    def __init__(self, planned: int, noun: str) -> None:
        self.planned = _checks.integer("planned", planned, least=0)
        self.used = 0
        self._noun = noun

    @property
    def remaining(self) -> int:
        """Return how many releases can still be made."""
        return self.planned - self.used

    def check(self, size: int) -> None:
        """Raise PrivacyRefused if `size` more releases are not covered."""
        if size > self.remaining:
            raise PrivacyRefused(
                f"The plan covers {self.planned} {self._noun}, of which {self.remaining} are left; "
                f"{size} more would void the guarantee. Plan with a larger 'n_queries'."
            )

    def note_releases(self, size: int) -> None:
        """Pay for `size` releases, before any of them is made."""
        self.check(size)
        self.used += size
