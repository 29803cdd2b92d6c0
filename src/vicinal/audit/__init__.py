"""Evidence: how much the installed mechanisms give away, measured, beside what they claim.

Worlds are made up from public things; no private record is read. Every audit is carried out on
broken versions as well, so that it says what it would have caught.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
