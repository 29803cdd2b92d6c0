"""`python tests/seeded.py -m vicinal ...`: Python whose noise is the same in every run.

For tests that judge what a process of its own answers. Its entropy is seeded as that of a test.
"""

import runpy
import sys

import entropy


def main(program, *arguments):
    """Run a module (-m NAME), standard input (-) or a script."""
    entropy.installed("0").start("a process of its own")
    if program == "-m":
        sys.argv = [*arguments]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    elif program == "-":
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
