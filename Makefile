# The few commands of this project. Continuous integration runs the same ones: .ci/run is `make test`.
# Each target sets up what it needs first, and that is quick when nothing is left to do.

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test test-all lint check bench bench-peers counts studies scale campaign audit clean

BIN := .venv/bin
# Compiled code is kept, whatever the environment says: else each of the hundreds of servers that tests start compiles everything.
unexport PYTHONDONTWRITEBYTECODE
PYTHON_CODE := src tests benchmarks examples
# The number of pytest workers: two more than the cores of a small machine, since many tests wait. `make test WORKERS=8` on a bigger one.
WORKERS ?= 4

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv and install what is needed into it
	@scripts/setup

docs: setup ## build the site of docs into site/ (no network needed)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

demo: setup ## show causal order kept where a naive network breaks it
	@$(BIN)/thence demo

test: lint ## lint, then run the tests that every change has to pass
	@$(BIN)/pytest -q -n $(WORKERS) --dist loadscope --no-loadscope-reorder -m 'not campaign'

test-all: test ## make test, then the tests that take too long for every commit
	@$(BIN)/pytest -q -n 0 -m campaign

lint: setup ## style, types and direction of imports
	@$(BIN)/ruff check $(PYTHON_CODE)
	@$(BIN)/ruff format --check $(PYTHON_CODE)
	@$(BIN)/mypy $(PYTHON_CODE)
	@$(BIN)/lint-imports --no-logo

check: lint test ## lint and test; what has to pass before a change is proposed

bench: setup ## run the benchmarks and print their tables
	@$(BIN)/python -m benchmarks

bench-peers: setup ## measure beside NATS and Redis, and up to 150 servers (some minutes; installs them as root)
	@$(BIN)/python -m benchmarks peers servers_growth

counts: setup ## count what order costs in each configuration and write docs/research/counts.md
	@$(BIN)/python -m benchmarks.counts

studies: setup ## run all studies of the papers and write their reports to docs/research/studies (under an hour on two cores)
	@$(BIN)/thence study run all --fresh
	@for folder in study-runs/*/; do $(BIN)/thence study report "$$folder" --to docs/research/studies; done
	@rm -f docs/research/studies/*.html

scale: setup ## simulate and judge 100,000 multicasts in a fabric of 1,000 processes (some minutes)
	@$(BIN)/python -m benchmarks.scale

campaign: setup ## run the tests that take too long for every commit, and the property tests over a great many seeds; report
	@$(BIN)/pytest -q -n 0 -m campaign
	@$(BIN)/python -m tests.campaign

audit: setup ## look for unsafe code, and for known holes in the pinned packages (that needs a network)
	@$(BIN)/ruff check --select S src
	@test -d .audit || $(BIN)/python -m venv .audit
	@.audit/bin/pip install -q pip-audit
	@.audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

clean: ## remove everything that the other targets made, .venv too
	@rm -rf .venv .audit .setup.lock .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site src/*.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
