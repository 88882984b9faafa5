# Two targets matter: `make demo` shows what voxpop is for, `make test` checks everything.
# Both set up .venv by themselves; all they need is python3 (3.11 or newer) and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The compiled kernels are built again when their sources change.
NATIVE := CMakeLists.txt $(wildcard src/voxpop/inference/native/*)

.PHONY: demo test lint types docs smoke clean

demo: $(VENV)/.installed
	$(BIN)/voxpop demo

test: lint types docs
	$(BIN)/pytest
	$(MAKE) smoke

lint: $(VENV)/.developer
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

types: $(VENV)/.developer
	$(BIN)/mypy

docs: $(VENV)/.developer
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# What a stranger gets: the wheel, in an environment that holds nothing else.
smoke: $(VENV)/.developer
	rm -rf build/smoke && mkdir -p build/smoke
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/smoke .
	$(BIN)/python -m venv build/smoke/venv
	build/smoke/venv/bin/pip install --quiet build/smoke/*.whl
	cd build/smoke && venv/bin/voxpop --help > /dev/null
	cd build/smoke && venv/bin/voxpop simulate --tasks 50 -o crowd
	cd build/smoke && venv/bin/voxpop aggregate crowd/answers.csv --truth crowd/truth.csv > tasks.csv
	test -s build/smoke/answers.voxpop/report.html
	rm -rf build/smoke

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit('voxpop needs Python 3.11 or newer, this is ' + sys.version.split()[0] if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(VENV) || (echo "python3 lacks the venv module; on Debian: apt install python3-venv" && false)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.developer: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[dev,docs]"
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
