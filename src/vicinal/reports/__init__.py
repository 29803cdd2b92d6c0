"""Reports of the commands: the demo page, plans, accuracies, certificates and smoothed audits.

No module here reads remaining budgets. Reports contain public facts of a plan, released answers
and, for public demonstration data only, simulations, which are marked as such.
"""
