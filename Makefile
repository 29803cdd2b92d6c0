# Every target makes what it needs: `make demo` on a fresh clone installs into .venv and runs.
# PYTHON=python3.12 chooses the interpreter; ARGS="..." is handed to the command of the target.

PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
# Python compiles a module when it is first imported: most never are, and all take two minutes.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps
HASHED := $(PIP) --require-hashes --requirement requirements/
TORCH := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile \
	--requirement requirements/torch.txt
ITSELF := $(PIP) --no-build-isolation --editable .
# torch.txt is written by hand: its CPU and CUDA builds have one version and other hashes.
LOCK = printf 'hatchling>=1.27\neditables\n' | out/uv/bin/uv pip compile -q pyproject.toml - $(ARGS) \
	--universal --python-version 3.11 --only-binary :all: --generate-hashes --no-annotate \
	--no-emit-package torch --custom-compile-command "make lock"
CORE := $(VENV)/.core-installed
DEV := $(VENV)/.dev-installed
DOCS := $(VENV)/.docs-installed

# A worker multiplies on one thread. Three fill two cores: a quarter of the time they wait, for
# processes that start, are killed, or serve.
WORKERS ?= 3
JOBS ?= auto
COMPILE := $(BIN)/python -m vicinal.reports._compile
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest
SPREAD = --numprocesses=$(WORKERS) --dist=worksteal
unexport PYTHONDONTWRITEBYTECODE # or each of some hundred child processes compiles every module

.NOTPARALLEL: # one pip at a time in one .venv
.DELETE_ON_ERROR:
.PHONY: help install tools demo test quick soak lint bench reproduce docs docs-check sbom dist lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(CORE) ## install vicinal and its core dependencies into .venv

tools: $(DEV) ## install all that tests and lint need, too

demo: $(CORE) ## classify 1,000 digits from 60,000 private records; report in out/demo
	@$(BIN)/vicinal demo $(ARGS)

# The order of a set of names is luck, too. Soaks take any.
test: export PYTHONHASHSEED = 0
test: $(DEV) ## run every test but the soaks, in three processes (WORKERS=2: less memory)
	@$(COMPILE) # or all workers compile the same kernels
	@$(PYTEST) $(SPREAD) --durations=20 $(ARGS)

quick: export PYTHONHASHSEED = 0
quick: $(DEV) ## a minute or two: golden values, two worlds, charges, kills, what others compute
	@$(COMPILE)
	@$(PYTEST) $(SPREAD) -m quick -q $(ARGS)

soak: $(DEV) ## hours: the long forms of tests, and the statistical ones on real entropy
	@$(PYTEST) --soak --hypothesis-profile=soak --durations=20 $(ARGS)
	@$(PYTEST) $(SPREAD) -m statistical --entropy=system $(ARGS)

lint: $(DEV) ## style, formatting, types, import contracts
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --num-workers=2
	@$(BIN)/lint-imports --no-logo

bench: $(CORE) ## measure speed on this machine (ARGS=--short: a minute or less)
	@$(BIN)/python -m benchmarks $(ARGS)

reproduce: $(CORE) ## print a table of the documentation (ARGS="indknn-mnist --runs 1"; no ARGS: list them)
	@$(BIN)/python -m experiments $(or $(ARGS),--help)

# Beside other work -j 1: each process reads the package anew, and all hand in what they have read.
docs: $(DOCS) ## build the site into out/docs: every tutorial runs, a warning is an error
	@MPLBACKEND=agg $(BIN)/python -m sphinx -W --keep-going -q -j $(JOBS) -b html docs out/docs $(ARGS)
	@echo "open out/docs/index.html"

docs-check: docs ## run every example and command of the pages, and check every link of the site
	@$(BIN)/python -m docs.site.check out/docs
	@VICINAL_SITE=out/docs $(PYTEST) $(SPREAD) tests/docs tests/serving/test_docs.py

sbom: $(CORE) ## print what the pinned set holds, as CycloneDX JSON
	@$(BIN)/python -m docs.sbom

dist: $(DOCS) ## build both wheels and the sdist into dist, and check them
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m build --no-isolation --wheel --outdir dist demo-data
	@$(BIN)/python -m twine check --strict dist/*

lock: | $(BIN)/python ## pin packages and their hashes anew (ARGS=--upgrade: the newest versions)
	@$(BIN)/python -m venv out/uv && out/uv/bin/python -m pip install -qq uv
	@sed -i -e '/--hash=/d' -e 's/ \\$$//' requirements/dev.txt requirements/core.txt requirements/docs.txt
	@$(LOCK) --extra dev,encoders,postgres,text --output-file requirements/dev.txt
	@$(LOCK) --extra serve --constraint requirements/dev.txt --output-file requirements/core.txt
	@$(LOCK) --constraint requirements/dev.txt --extra docs --output-file requirements/docs.txt
	@awk '/^[^ ]/ {on = /^psycopg/} on' requirements/dev.txt > requirements/postgres.txt

clean: ## remove .venv, outputs and caches
	rm -rf $(VENV) out build dist docs/generated .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find benchmarks examples experiments src tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@$(PYTHON) .ci/check_platform.py
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(CORE): pyproject.toml requirements/core.txt | $(BIN)/python
	@echo "Installing vicinal into $(VENV): about .7 GB, a minute or more ..." >&2
	@$(HASHED)core.txt
	@$(ITSELF)
	@$(COMPILE) # or each first run waits for it
	@touch $@

$(DEV): pyproject.toml requirements/dev.txt requirements/torch.txt | $(BIN)/python
	@echo "Installing vicinal and its developer tools into $(VENV) ..." >&2
	@$(HASHED)dev.txt
	@$(TORCH)
	@[ $(CORE) -nt pyproject.toml ] || $(ITSELF)
	@[ -e $(CORE) ] || $(COMPILE)
	@touch $(CORE) $@

$(DOCS): $(DEV) requirements/docs.txt
	@$(HASHED)docs.txt
	@touch $@
