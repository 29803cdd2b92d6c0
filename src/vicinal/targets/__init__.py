"""Kinds of record targets (classes, numbers, label sets) and the computation of their answers."""
