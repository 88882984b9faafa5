"""``python -m voxpop`` is ``voxpop``: ready for Ctrl-C and closed streams before all else."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line; an interrupt at any moment ends it in a line, without a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: nobody listens
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    # Ended from outside, temporary files are removed all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        from voxpop.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    except OSError as error:  # the help could not be printed, for instance
        sys.exit(f"Error: {error.strerror or error}")
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done; Python is closing down


if __name__ == "__main__":
    main()
