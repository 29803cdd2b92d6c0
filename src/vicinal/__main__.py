"""The program `vicinal`, also `python -m vicinal`. It handles Ctrl-C before it imports anything.

Importing takes up to seconds, and Ctrl-C may come meanwhile: from the first line on it ends the
program with one line on stderr and exit code 130, as the commands do themselves.
"""

import os
import signal


def main() -> None:
    """Run the program; until its commands are imported, Ctrl-C ends the process at once."""
    previous_handler = signal.getsignal(signal.SIGINT)  # ignored in the background of a shell
    if previous_handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_interrupted)
    from vicinal.cli.main import app

    signal.signal(signal.SIGINT, previous_handler)
    app(prog_name="vicinal")


def _exit_interrupted(*_: object) -> None:
    """Exit at once: nothing is open yet, and a raised error could be lost in an import."""
    os.write(2, b"vicinal: interrupted.\n")
    os._exit(130)


if __name__ == "__main__":
    main()
