"""What privacy loss distributions say, beyond what the package asks of them."""

from vicinal.accounting import composed_losses


def pld_delta(pairs, epsilon):
    """Return delta <= 1 of all `pairs`, each with its count, at `epsilon` >= 0, rounded up."""
    totals = composed_losses(pairs, 1e-15)
    return min(1.0, max(total.delta(epsilon) for total in totals)) if totals else 1.0
