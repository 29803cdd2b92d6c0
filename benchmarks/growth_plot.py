"""Draw how cost grows: `python -m benchmarks.growth_plot PRINTED.txt FILE.svg`.

Takes what `python -m benchmarks --growth` printed, on this machine or another.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.growth import WORDS

Curve = tuple[list[int], list[float], float]

_LINE = re.compile(r"^  (\D+?) +power +(-?[\d.]+): +(.*)$", re.MULTILINE)
_PAIR = re.compile(r"([\d,]*\d) (\d+\.\d+)")


def curves(printed: str) -> dict[str, Curve]:
    """Return sizes, ms a query and the power of everything that was varied."""
    found = {}
    for name, power, cells in _LINE.findall(printed):
        pairs = _PAIR.findall(cells)
        sizes = [int(size.replace(",", "")) for size, _ in pairs]
        found[name] = sizes, [float(ms) for _, ms in pairs], float(power)
    return found


def draw(found: dict[str, Curve], path: Path) -> None:
    """Draw one curve for each thing that was varied, over its least size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    markers = dict(zip(WORDS.values(), "osd^v", strict=True))
    for name, (sizes, times, power) in found.items():
        label = f"{name}: {sizes[0]:,} to {sizes[-1]:,}, power {power:.2f}"
        axes.loglog([size / sizes[0] for size in sizes], times, marker=markers[name], label=label)
    axes.set_xlabel("work, over the least that was measured")
    axes.set_ylabel("ms a query")
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Draw."""
    printed, target = sys.argv[1:]
    draw(curves(Path(printed).read_text(encoding="utf-8")), Path(target))


if __name__ == "__main__":
    main()
