"""From raw records to feature vectors: fixed extractors, and a map learnt from public data only.

Whatever stands here sees a record before any privacy is paid for, so the output for one record
may depend on that record and on public things, never on other records. Names are imported when
they are used, as some load for a second.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
