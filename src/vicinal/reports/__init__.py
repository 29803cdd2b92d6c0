"""What commands show: the demo's page, plans, prices, transfers, smoothed audits, searches.

Nothing here looks at a ledger. What is shown is public facts of a plan, answers, and (in
comparisons on public demonstration data only) simulations, which are marked as such.
"""
