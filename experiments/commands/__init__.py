"""The commands of `python -m experiments`: options in, a table out."""
