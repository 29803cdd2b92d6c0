"""For every mechanism: what it claims, and what the best attack known here proves of it."""

import math
from collections.abc import Iterator
from dataclasses import replace

from scipy.special import ndtr, ndtri

from experiments.audits.kept import Makers, RunFolder
from vicinal.audit import AuditResult, list_all_attacks
from vicinal.audit.claims import SELECTION_SHARE
from vicinal.audit.ind_knn import IndKNNAudit
from vicinal.audit.schedule import run_audits

_STRETCH = 10_000

_HEAD = ("attack", "claim", "lower", "ratio", "possible", "eps claim", "eps lower", "runs", "s")


def cases(n_classes: int, epsilon: float) -> Makers:
    """Return all attacks, and labels of two classes, where their price is exact."""
    made = list_all_attacks(IndKNNAudit(n_classes, epsilon))
    return {**made, "labels-two-classes": IndKNNAudit(2, epsilon).build_labels_attack}


def measured(
    makers: Makers, runs: int, seconds: float, folder: RunFolder
) -> Iterator[tuple[str, AuditResult]]:
    """Carry out attacks by name, each until it has `runs` of each world or its seconds are over.

    The seconds of a result are a processor's, for the runs alone.
    """
    for name, make in makers.items():
        trial = folder.kept(name, make(), min(_STRETCH, runs))
        (found,) = run_audits([trial], seconds, max_runs=runs, controls=False)
        yield name, replace(found, seconds=trial.seconds)


def possible_ratio(mu: float, runs: int, confidence: float) -> float:
    """Return about the ratio that a Gaussian shift of `mu` shows in so many runs of each world.

    It meets its claim, so what is missing to 1 is the bound's: both errors alike, half of the
    failure probability, and the scores that choose the test. Of no shift nothing can be shown.
    """
    if mu <= 0:
        return 0.0
    counted = 2 * (1 - SELECTION_SHARE) * runs
    rate = float(ndtr(mu / 2))
    spread = math.sqrt(rate * (1 - rate) / counted)
    proved = rate + float(ndtri((1 - confidence) / 2)) * spread
    return max(0.0, 2 * float(ndtri(max(proved, 0.5))) / mu)


def text_row(name: str, found: AuditResult | None = None) -> str:
    """Return a line of the table; without a result its head."""
    if found is None:
        cells: tuple[str, ...] = _HEAD
    else:
        cells = (
            name, f"{found.claimed_mu:.3f}", f"{found.mu_lower_bound:.3f}", f"{found.ratio:.2f}",
            f"{possible_ratio(found.claimed_mu, found.runs, found.confidence):.2f}",
            f"{found.epsilon_claim:.3f}", f"{found.epsilon_lower:.3f}", str(found.runs),
            f"{found.seconds:.0f}",
        )  # fmt: skip
    return f"{cells[0]:20}" + "".join(f"{cell:>11}" for cell in cells[1:])


def flat_row(name: str, found: AuditResult) -> dict[str, object]:
    """Return the figures of an attack for a line of a file."""
    return {
        "attack": name, "mechanism": found.mechanism, "world": found.scenario,
        "mu claimed": found.claimed_mu, "mu proved": found.mu_lower_bound, "ratio": found.ratio,
        "ratio possible": possible_ratio(found.claimed_mu, found.runs, found.confidence),
        "epsilon claimed": found.epsilon_claim, "epsilon proved": found.epsilon_lower,
        "mu moved, exactly": found.total_shift_mu, "at most": found.max_total_shift_mu,
        "runs": found.runs, "processor seconds": found.seconds,
    }  # fmt: skip
