# make demo: do mental accounts help? A first answer in minutes.   make test: all that must hold before a change lands.
# make results: the results on pages, from results/.                make bench: the speed on this machine.
# make house: who imports whom, into docs/architecture.md.          make docs: the documentation site, into build/site.
# make dist: a release, into dist, installed and tried.             make lowest: the tests with the lowest versions allowed.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
SMALL := .venv/.installed-small
SITE := .venv/.installed-docs
LOWEST := .lowest/.installed
ROOMS := $(addprefix tests/,accounts data environments export inspect integrations learning policy report study)
# One more than cores, up to five: some tests wait for processes.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count() or 1) + 1)')

.PHONY: demo test lint types unit results docs house bench dist lowest clean
.DEFAULT_GOAL := test

test: lint types unit

# What it takes to run, and what it takes to develop.
$(SMALL): EXTRAS := mujoco,report
$(SITE): EXTRAS := docs
$(INSTALLED): EXTRAS := dev
$(SMALL) $(SITE) $(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + "; try: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

unit: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

demo: $(SMALL)
	$(BIN)/mental-accounts compare --preset demo --seeds 5

results: $(INSTALLED)
	$(BIN)/python studies/results_pages.py

docs: $(SITE)
	$(BIN)/python studies/notebooks.py
	$(BIN)/python studies/build_site.py

house: $(INSTALLED)
	$(BIN)/python studies/house.py

bench: $(INSTALLED)
	$(BIN)/python benchmarks/bench_core.py
	$(BIN)/python benchmarks/bench_update.py --batch 64
	$(BIN)/python benchmarks/bench_peers.py

dist: $(INSTALLED)
	$(BIN)/python studies/release.py

# An environment of its own. Old libraries among new ones warn of each other, which is not ours to fix.
$(LOWEST): $(INSTALLED) studies/lowest_versions.py
	test -x .lowest/bin/python || $(PYTHON) -m venv .lowest
	$(BIN)/python studies/lowest_versions.py > .lowest/constraints.txt
	.lowest/bin/python -m pip install --quiet --disable-pip-version-check -c .lowest/constraints.txt -e '.[all,ray,hf,torchrl,sb3,popgym,hub,onnx]' hypothesis pytest pytest-xdist
	touch $@

lowest: $(LOWEST)
	.lowest/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal -W ignore::DeprecationWarning $(ROOMS) tests/test_cli*.py tests/test_front_door.py

clean:
	rm -rf .venv .lowest .bench build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
