"""Which records take part in an answer: integer features, kernels, radius, engines and indexes.

Nothing here knows labels, budgets or noise. What a record contributes to a search depends on that
record, the query and public values, never on which other records are present.
"""

from vicinal.lazy import attach_exports

__getattr__, __dir__, __all__ = attach_exports(__name__)
