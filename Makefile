# Two commands set everything up from a clean clone with Python 3.11-3.13 and a package index:
#   make demo   the COVID model on a synthetic city, with progress, table, plot and run folder
#   make test   the test suite
# The first of each installs into .venv; later ones reuse it until pyproject.toml or constraints.txt changes.

# The first interpreter found that is new enough; `make test PYTHON=python3.12` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Plain pip, not uv: uv does not read pip's configuration, and so misses a locally kept torch.
# People see the downloads, CI does not need to.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check $(if $(CI),--quiet) -c constraints.txt

# Images set it. Tests start some fifty processes, which would compile the same files again and again.
unexport PYTHONDONTWRITEBYTECODE

# What an installation depends on.
SET_UP_BY := pyproject.toml constraints.txt src/denizen/_version.py

# Two workers, each with half of the tests in order; who is done first takes over from the other.
WORKERS := -n 2 --dist worksteal
PYTEST_ARGS ?= $(WORKERS)
DEMO_ARGS ?=

.PHONY: help demo test test-all check format docs gallery notebooks dist clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    set up and run the COVID model (DEMO_ARGS=... go to 'denizen run covid')"
	@echo "make test    set up and run the tests (PYTEST_ARGS='-m slow' or a path narrow them)"
	@echo "make test-all  the slow ones as well, as CI does"
	@echo "make check   linter, formatter, types, layers, spelling, changelog, documentation"
	@echo "make format  let ruff rewrite what it can"
	@echo "make docs    build the documentation into site/, strictly"
	@echo "make gallery  draw the pictures of the gallery anew"
	@echo "make notebooks  run the notebooks of docs/notebooks and make their pages"
	@echo "make dist    build sdist and wheel into dist/"
	@echo "make clean   remove .venv and everything built (not runs/)"

demo: $(VENV)/.stamp-demo
	$(BIN)/denizen run covid $(DEMO_ARGS)

test: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-all: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest $(WORKERS) -m "not cuda and not long"

# Cheapest first; the first that fails ends the run.
check: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports
	$(BIN)/pyrefly check
	$(BIN)/towncrier build --draft --version check > /dev/null
	$(BIN)/zensical build --strict --clean

format: $(VENV)/.stamp-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.stamp-dev
	$(BIN)/zensical build --strict --clean

notebooks: $(VENV)/.stamp-dev
	$(BIN)/python tests/notebooks.py

dist: $(VENV)/.stamp-dev
	$(BIN)/python -m hatchling build -d dist

gallery: $(VENV)/.stamp-dev
	$(BIN)/python docs/make_gallery.py

clean:
	rm -rf $(VENV) dist build site .pytest_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/.stamp-venv:
	@test -n "$(PYTHON)" || { echo "denizen needs Python 3.11, 3.12 or 3.13 on the PATH (or make PYTHON=/path/to/python)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-demo: $(VENV)/.stamp-venv $(SET_UP_BY)
	@echo "installing denizen and its extras into $(VENV), once; torch is the large part"
	$(PIP_INSTALL) -e '.[all]'
	@touch $@

# The developers' set contains the demo's, so both are up to date afterwards.
$(VENV)/.stamp-dev: $(VENV)/.stamp-venv $(SET_UP_BY)
	@echo "installing denizen, its extras and the developers' tools into $(VENV), once; torch is the large part"
	$(PIP_INSTALL) -e '.[dev]'
	@touch $(VENV)/.stamp-demo $@
