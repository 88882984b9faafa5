"""``python -m voxpop`` is ``voxpop``."""

from voxpop.cli import main

if __name__ == "__main__":
    main()
