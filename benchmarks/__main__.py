"""Print every goal of speed with its figure: `python -m benchmarks [--only GROUP] [--short]`.

`--parts` prints what a prediction is made of. `python -m benchmarks.search` has all indexes and
sizes, `python -m benchmarks.rivals` what other libraries offer.
"""

import argparse

from benchmarks import goals, parts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="small sizes, for a smoke test")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--parts", action="store_true", help="what a prediction is made of")
    tables.add_argument("--only", choices=goals.GROUPS, help="one group of goals")
    arguments = parser.parse_args()
    if arguments.parts:
        print(parts.report(arguments.short))
        return
    for line in goals.report(arguments.short, arguments.only):
        print(line, flush=True)


if __name__ == "__main__":
    main()
