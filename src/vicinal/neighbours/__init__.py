"""Neighbour search on integer features: kernels, radii, engines and indexes.

This package has no access to labels, budgets or noise. The contribution of a record to a search
depends on that record, the query and public values, never on which other records are present.
"""

from vicinal.lazy import build_lazy_exports

__getattr__, __dir__, __all__ = build_lazy_exports(__name__)
