# Every target that needs Python sets up .venv first, once: the stamp is rebuilt only when
# pyproject.toml or constraints.txt change, so a second call costs nothing.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.octavo-stamp
# The site has an environment of its own: it reads the sources and needs neither torch nor what the tests need.
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.octavo-stamp
# A name on the PATH may be a shim of a version that is not installed, so each one is tried.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	"$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$name" && break; done)
# Further arguments: make test ARGS="-k layering", make demo ARGS="--json".
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check docs tables dist floors conformance zoo grid format clean

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 13

setup: $(STAMP)  ## create .venv with Octavo and everything that development needs

demo: $(STAMP)  ## show the whole story on the embedded model
	$(BIN)/octavo demo $(ARGS)

test: $(STAMP)  ## run the tests: offline, on the CPU
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)  ## check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(DOCS_STAMP)  ## build the documentation site into build/site; ARGS=serve shows it while you write
	NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(DOCS)/bin:$$PATH" mkdocs $(or $(ARGS),build) --strict
	@test ! -f build/site/index.html || echo "open build/site/index.html; it needs no server and no network"

# The paper's order; the search of ranges is long and stands last.
PAGES := overview ours initial leave-one-out mixed-precision peg main low-bit-full range-estimators

tables: $(STAMP)  ## fill the tables and figures of the pages anew from results/
	$(BIN)/octavo tables results/minilm --table ours --table overview --details -o docs/results-minilm.md
	$(BIN)/octavo tables results/mpnet-base $(PAGES:%=--table %) --details --no-figures -o docs/results-mpnet-base.md
	for script in findings recipes; do $(BIN)/python benchmarks/$${script}_table.py || exit; done
	for script in method deploy; do $(BIN)/python benchmarks/$${script}_tables.py || exit; done

dist:  ## build sdist and wheel, check them, install the wheel alone elsewhere and run the demo there
	@test -n "$(PYTHON)" || { echo "Octavo needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) tests/release/dist.py

floors:  ## run a slice of the tests with the lowest versions that pyproject.toml allows, in an environment of their own
	@test -n "$(PYTHON)" || { echo "Octavo needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m tests.release.floors $(ARGS)

conformance: $(STAMP)  ## try every encoder family and write docs/conformance.md: a quarter of an hour
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.conformance.matrix -o docs/conformance.md $(ARGS)

zoo: $(STAMP)  ## run the tests with real models, which lie in the folder that OCTAVO_ZOO names
	@test -n "$(OCTAVO_ZOO)" || { echo "name the folder with the models: make zoo OCTAVO_ZOO=FOLDER" >&2; exit 1; }
	OCTAVO_ZOO="$(OCTAVO_ZOO)" $(BIN)/python -m pytest -n 1 -m zoo -o junit_family=xunit1 --junit-xml=build/zoo.xml tests/zoo $(ARGS)

# Every table of the paper and our own recipes; the search of ranges first, as rows with the best ranges read it.
GRID := range-estimators initial leave-one-out mixed-precision peg main low-bit low-bit-full overview ours
SECONDS ?= 540
WORKERS ?= 15
TRAININGS ?= 5

grid: $(STAMP)  ## run what is missing of every table for SECONDS: make grid MODEL=mpnet-base DATA=glue OUT=results/mpnet-base
	@test -n "$(MODEL)" -a -n "$(DATA)" -a -n "$(OUT)" || { echo "name the model, GLUE's folder and the results: make grid MODEL=M DATA=D OUT=DIR" >&2; exit 1; }
	$(BIN)/octavo reproduce $(GRID) --model "$(MODEL)" --data "$(DATA)" -o "$(OUT)" --workers $(WORKERS) --trainings $(TRAININGS) --stop-after $(SECONDS) $(ARGS)

format: $(STAMP)  ## format the code and apply the safe fixes of the linter
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

clean:  ## remove caches and build outputs; .venv stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Octavo needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(DOCS_STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "the site needs Python 3.11 or newer; name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(DOCS)
	@$(PYTHON) -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["optional-dependencies"]["docs"], sep="\n")' > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -r $(DOCS)/requirements.txt
	@touch $@
