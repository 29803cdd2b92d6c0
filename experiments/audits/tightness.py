"""For every mechanism: what it claims, and what the best attack known here proves of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vicinal.audit import AuditResult, AuditTrial, IndKNNAudit, all_trials, carry_out

Makers = dict[str, Callable[[], AuditTrial]]

_HEAD = ("attack", "claim", "lower", "ratio", "eps claim", "eps lower", "runs", "s")


def cases(n_classes: int, epsilon: float) -> Makers:
    """Return all attacks, and labels of two classes, where their price is exact."""
    made = dict(all_trials(IndKNNAudit(n_classes, epsilon)))
    return {**made, "labels-two-classes": IndKNNAudit(2, epsilon).labels}


def measured(makers: Makers, runs: int, seconds: float) -> Iterator[tuple[str, AuditResult]]:
    """Carry out attacks by name, each until it has `runs` of each world or its seconds are over."""
    for name, make in makers.items():
        yield name, carry_out(make(), seconds, runs=runs, controls=False)


def text_row(name: str, found: AuditResult | None = None) -> str:
    """Return a line of the table; without a result its head."""
    if found is None:
        cells: tuple[str, ...] = _HEAD
    else:
        cells = (
            name, f"{found.claim:.3f}", f"{found.lower:.3f}", f"{found.ratio:.2f}",
            f"{found.epsilon_claim:.3f}", f"{found.epsilon_lower:.3f}", str(found.runs),
            f"{found.seconds:.0f}",
        )  # fmt: skip
    return f"{cells[0]:20}" + "".join(f"{cell:>11}" for cell in cells[1:])
