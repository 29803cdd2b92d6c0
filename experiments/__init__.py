"""Tables and figures of the papers and of the documentation, printed from the data.

`python -m experiments NAME`. Everything here runs on public data with seeded noise, so that figures
can be repeated; none of it carries a guarantee. It is no part of the installed package.
"""
