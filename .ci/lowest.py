"""Print the oldest versions that pyproject.toml allows, as requirements for pip."""

import tomllib
from pathlib import Path

# What runs the tests is not what users install: any version will do.
TOOLS = ("hypothesis", "pytest", "pytest-xdist")
EXTRAS = ("sql", "plots", "learn")

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
oldest = {*project["dependencies"], *(one for name in EXTRAS for one in extras[name])}
oldest |= {one for one in extras["dev"] if one.startswith("polars")}
# The oldest matplotlib uses names that pyparsing 3.3 warns of, and warnings are errors in tests.
tools = {"pyparsing<3.3"} | {one for one in extras["dev"] if one.partition(">=")[0] in TOOLS}
print("\n".join(sorted({one.replace(">=", "==") for one in oldest} | tools)))  # noqa: T201
