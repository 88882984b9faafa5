# `make demo` shows what voxpop is for, `make check` is the quick check while you work, and
# `make test` checks everything. All set up .venv by themselves; they need python3 (3.11 or newer)
# and make. A C++ compiler, where there is one, builds the compiled kernels.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Builds share one folder and the tools in .venv, so that only what changed is compiled again.
BUILD := --no-build-isolation --config-settings=build-dir=build/cmake

# An editable install knows the modules that were there when it was made, and the kernels as they
# were compiled: it is made again when a file comes or goes, or when a C++ source changes.
NATIVE := CMakeLists.txt $(sort $(wildcard src/voxpop/inference/native/*))
FILES := $(shell find src/voxpop -name '*.py' | LC_ALL=C sort) $(NATIVE)

.PHONY: demo check test lint types docs smoke lowest lock audit clean
ifneq ($(FILES),$(shell cat $(VENV)/.files 2> /dev/null))
.PHONY: $(VENV)/.installed $(VENV)/.developer
endif

demo: $(VENV)/.installed
	$(BIN)/voxpop demo

check: lint types
	$(BIN)/pytest -m "not slow"

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

# What a user gets: the wheel, in an environment that holds nothing else.
smoke: $(VENV)/.developer
	rm -rf build/smoke && mkdir -p build/smoke
	$(PIP) wheel --no-deps $(BUILD) --wheel-dir build/smoke .
	$(BIN)/python -m venv build/smoke/venv
	build/smoke/venv/bin/pip install --quiet build/smoke/*.whl
	cd build/smoke && venv/bin/voxpop --help > /dev/null
	cd build/smoke && venv/bin/voxpop simulate --tasks 50 -o crowd
	cd build/smoke && venv/bin/voxpop aggregate crowd/answers.csv --truth crowd/truth.csv > tasks.csv
	test -s build/smoke/crowd/answers.voxpop/report.html
	rm -rf build/smoke

# The oldest versions that pyproject.toml allows, exactly, and the quick tests with them.
lowest: $(VENV)/.developer
	rm -rf build/lowest && $(BIN)/python -m venv build/lowest/venv
	$(BIN)/python .ci/lowest.py > build/lowest/requirements.txt
	build/lowest/venv/bin/pip install --quiet --requirement build/lowest/requirements.txt
	$(PIP) wheel --no-deps $(BUILD) --wheel-dir build/lowest .
	build/lowest/venv/bin/pip install --quiet --no-deps build/lowest/*.whl
	build/lowest/venv/bin/pytest -m "not slow"
	rm -rf build/lowest

# The newest versions that pyproject.toml allows, for all who develop: run `make test` with them.
lock: $(VENV)/.developer
	$(PIP) install $(BUILD) --upgrade --upgrade-strategy eager --editable ".[dev,docs]"
	$(PIP) freeze --exclude-editable | LC_ALL=C sort > requirements.lock

# Known weaknesses of what is locked; needs the network.
audit: $(VENV)/.developer
	$(PIP) install pip-audit
	$(BIN)/pip-audit --requirement requirements.lock --no-deps --disable-pip

$(VENV)/bin/python:
	$(PYTHON) -c "import sys; sys.exit('voxpop needs Python 3.11 or newer, this is ' + sys.version.split()[0] if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(VENV) || (echo "python3 lacks the venv module; on Debian: apt install python3-venv" && false)
	$(PIP) install --upgrade pip

# What builds the package: as pyproject.toml says, and cmake and ninja where the system has none.
# If the kernels cannot be compiled, the package is installed without them.
$(VENV)/.build: pyproject.toml | $(VENV)/bin/python
	$(PIP) install $$($(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])")
	for tool in cmake ninja; do command -v $$tool > /dev/null || $(PIP) install $$tool; done
	touch $@

$(VENV)/.installed: $(VENV)/.build $(NATIVE)
	$(PIP) install $(BUILD) --editable .
	@echo "$(FILES)" > $(VENV)/.files
	touch $@

# With the locked versions, so that a new release of a dependency fails no test of ours; elsewhere,
# where these cannot be had, with the newest.
$(VENV)/.developer: $(VENV)/.build requirements.lock $(NATIVE)
	$(PIP) install $(BUILD) --constraint requirements.lock --editable ".[dev,docs]" || \
	  (echo "not all of requirements.lock can be had here: taking other versions" >&2 && \
	   $(PIP) install $(BUILD) --editable ".[dev,docs]")
	@echo "$(FILES)" > $(VENV)/.files
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build docs/_build docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis
