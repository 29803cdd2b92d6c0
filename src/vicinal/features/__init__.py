"""Feature vectors of raw records: fixed extractors, and a map fitted to public data only.

Features are extracted without a charge, so the features of a record may depend on that record and
on public values, never on other records. Names are imported at their first use, because some
imports take a second.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
