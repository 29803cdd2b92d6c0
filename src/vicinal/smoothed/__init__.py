"""What a mechanism without noise leaks: smoothed differential privacy, exactly.

A mechanism that only samples has a worst-case delta of about the sampling rate, because some
database has a record that shows whenever it is drawn. Smoothed differential privacy (LWX23) asks
for the mean delta over databases from the worst *plausible* world instead. smoothed.md says
when that may be relied on.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
