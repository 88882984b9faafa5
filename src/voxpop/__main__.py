"""``python -m voxpop`` is ``voxpop``: ready for Ctrl-C and closed streams before all else."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; an interrupt at any moment ends it in a line, without a traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: nobody listens
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    # Ended from outside too, temporary files are removed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    try:
        from voxpop.cli import main as command_line

        command_line()
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    except OSError as error:  # the help could not be printed, for instance
        sys.exit(f"Error: {error.strerror or error}")
    finally:
        # All is done, and Python is closing down.
        for name in ("SIGINT", "SIGTERM", "SIGALRM"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)


def _end(number: int, frame: FrameType | None) -> None:
    """End the command, or try again soon: an extension that is being imported would crash."""
    if _is_importing(frame) and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, lambda _, now: _end(number, now))
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(128 + number)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
