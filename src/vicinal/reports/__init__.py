"""What a run showed: accuracy with its uncertainty, comparisons, plots and the page of the demo.

Nothing here looks at a ledger. What is shown is public facts of a plan, answers, and (in
comparisons on public demonstration data only) simulations, which are marked as such.
"""
