"""What privacy loss distributions say, beyond what the package asks of them."""

from mpmath import mp, mpf

from vicinal.accounting.pld import compose_losses


def pld_delta(pairs, epsilon):
    """Return delta <= 1 of all `pairs`, each with its count, at `epsilon` >= 0, rounded up."""
    totals = compose_losses(pairs, 1e-15)
    return min(1.0, max(total.compute_delta(epsilon) for total in totals)) if totals else 1.0


def exact_gaussian_divergence(mu, epsilon):
    """Return the hockey-stick divergence of N(mu, 1) from N(0, 1), in the digits of mpmath."""
    mu, epsilon = mpf(mu), mpf(epsilon)
    upper, lower = mp.ncdf(mu / 2 - epsilon / mu), mp.ncdf(-mu / 2 - epsilon / mu)
    return upper - mp.exp(epsilon) * lower


def exact_binomial_delta(q, r, count, epsilon):
    """Return the divergence of `count` coins of chances r and q at `epsilon`, in 50 digits."""
    mp.dps = 50
    q, r, x = mpf(q), mpf(r), mp.exp(mpf(epsilon))
    total = mpf(0)
    for wins in range(count + 1):
        with_ = r**wins * (1 - r) ** (count - wins)
        without = q**wins * (1 - q) ** (count - wins)
        total += mp.binomial(count, wins) * max(mpf(0), with_ - x * without)
    return total
