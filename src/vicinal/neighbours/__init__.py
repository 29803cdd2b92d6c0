"""Which records take part in an answer: integer features, kernels, radius, engines and indexes.

Nothing here knows labels, budgets or noise. What a record contributes to a search depends on that
record, the query and public values, never on which other records are present.
"""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
