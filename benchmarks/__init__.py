"""Benchmarks: medians, and the ratio to the bare matrix product measured in the same run."""
