"""Audits: empirical lower bounds on the privacy loss of the installed mechanisms.

The lower bounds are compared with the claimed guarantees. Attacks run on made-up data, and no
private record is read. Each audit also runs on versions with injected faults (controls), which show
the violations that it detects.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
