# Verbs of this project. Everything happens in .venv; nothing outside this folder changes,
# but for downloads in the user's cache.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := worker,tasks,telemetry,embedded,plot,test,lint

.DEFAULT_GOAL := help
.PHONY: help venv setup chromium demo test test-unit test-gpu check format openapi screenshots results clean

help:
	@echo "make demo    set up, compress a small real model, show what it cost"
	@echo "make test    set up, run all tests (make test-unit: the quick ones)"
	@echo "make test-gpu  compare GPU with CPU and measure the GPU, on random models"
	@echo "make check   set up, run formatter, linter, type checker and import contracts"
	@echo "make openapi write docs/openapi.json anew"
	@echo "make screenshots  write the dashboard's pages, light and dark, wide and narrow, to docs/screenshots"
	@echo "make results DATA=DIR  measure what docs/results.md shows; hours, but resumable"
	@echo "make setup   set up only; make venv: the bare environment, to install another torch into"

# A torch that the interpreter already has, in a virtual environment or not, is used as it is: its
# folder is appended to the new environment's path.
FIND_TORCH := import importlib.util as u, pathlib as p; s = u.find_spec("torch"); s and print(p.Path(s.origin).parents[1])

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PYTHON) -c '$(FIND_TORCH)' > $(VENV)/torch.pth
	if [ -s $(VENV)/torch.pth ]; then mv $(VENV)/torch.pth $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/; fi
	$(BIN)/python -m pip install --quiet --upgrade pip

venv: $(BIN)/python

# The constraints pin torch for development, but never replace one that is there.
$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing into $(VENV); the first time this takes minutes."
	if $(BIN)/python -c 'import torch' 2>/dev/null; \
	then grep -v '^torch==' constraints.txt; \
	else cat constraints.txt; fi > $(VENV)/constraints.txt
	$(BIN)/python -m pip install --quiet --constraint $(VENV)/constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

setup: $(VENV)/.installed

demo: setup
	$(BIN)/ghosted demo

# The dashboard's tests drive a real browser, which is no Python package.
chromium:
	@if (command -v chromium || command -v chromium-browser || command -v google-chrome) >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
		|| echo "Chromium could not be installed: the tests of the dashboard cannot run."; \
	else echo "No Chromium here: the tests of the dashboard will be skipped. Install chromium, or set GHOSTED_CHROMIUM to a browser of its kind."; fi

# What needs no server, then what needs only a stack of its own, runs in several processes. What looks at all
# that runs here wants the machine for itself.
ALONE := tests/unit tests/families
STACKS := tests/dashboard tests/integration/evaluate tests/integration/services tests/integration/worker
FAULTS := tests/faults

test: setup chromium
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal $(ALONE)
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(STACKS)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(FAULTS)/test_storm.py $(FAULTS)
	$(BIN)/python -m pytest $(patsubst %,--ignore %,$(ALONE) $(STACKS) $(FAULTS))

test-unit: setup
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal tests/unit -m "not real"

test-gpu: setup
	$(BIN)/python -m pytest tests/gpu

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

openapi: setup
	$(BIN)/python -m services.openapi

screenshots: setup chromium
	$(BIN)/python -m tests.dashboard.screenshots docs/screenshots

results: setup
	$(BIN)/python benchmarks/results.py --data '$(DATA)' $(ARGS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
