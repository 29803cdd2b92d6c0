"""What commands show: the demo's page, plans, prices, transfers, smoothed audits, searches.

Nothing here looks at a ledger. What is shown is public facts of a plan, answers, and (in
comparisons on public demonstration data only) simulations, which are marked as such.
"""

from vicinal._lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)
