"""What audits find: how tight claims are, which faults are caught, how often a bound is wrong."""
