"""Smoothed differential privacy: certified deltas of mechanisms that add no noise.

A mechanism that only samples has a worst-case delta of about the sampling rate, because in some
database a record is revealed whenever it is sampled. Smoothed differential privacy (LWX23) uses
the mean delta over databases from the worst *plausible* world instead. The page
explanation/smoothed lists the conditions for relying on it.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
