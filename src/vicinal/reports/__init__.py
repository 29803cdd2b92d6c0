"""What a run showed: accuracy with its uncertainty, comparisons, plots and the page of the demo.

A room each for what can be asked: ``demo``, ``accuracy``, ``planning``, ``labelling``,
``accounting``, ``smoothed``. Only ``demo`` imports another of them; what several need stands in
``page`` (how a report looks) and in the modules beside it (how accuracy is measured on public
data).

Nothing here looks at a ledger. What is shown is public facts of a plan, answers, and (in
comparisons on public demonstration data only) simulations, which are marked as such.
"""
