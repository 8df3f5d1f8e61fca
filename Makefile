# `make` lists the targets. Everything is installed into .venv from the package registries alone; another Python, as in
# `make test PYTHON=python3.13`, has a folder of its own, .venv-python3.13.
DEFAULT := python3.11
PYTHON ?= $(DEFAULT)
VENV := .venv$(patsubst %,-%,$(filter-out $(DEFAULT),$(notdir $(PYTHON))))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TREE := .tree/logforge

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

setup: $(STAMP)  ## make the environment and install logforge with everything

demo: $(STAMP)  ## the whole chain on real logs, from raw files to an evaluated policy (writes ./demo)
	rm -rf demo
	mkdir demo
	@echo "\n── 1. raw logs into the store" && cd demo && ../$(BIN)/logforge ingest ../sample_logs
	@echo "\n── 2. a dataset: rewards, splits, augmented failures, states, shards" && cd demo && ../$(BIN)/logforge build-dataset \
	  --reward ../sample_logs/reward.yaml --augment paraphrase --augment tool_failure \
	  --retryable get_user_details --retryable get_reservation_details --retryable search_direct_flight
	@echo "\n── 3. SQL over transitions: what each action is worth" && cd demo && ../$(BIN)/logforge sql \
	  "SELECT action, count(*) AS n, round(avg(return_to_go), 2) AS mean_return FROM transitions_latest WHERE parent_id IS NULL AND NOT return_is_partial GROUP BY 1 HAVING n >= 5 ORDER BY 3 DESC"
	@echo "\n   … how episodes end" && cd demo && ../$(BIN)/logforge sql \
	  "SELECT split, source_kind, count(*) FILTER (terminal) AS terminals, count(*) FILTER (timeout) AS timeouts, round(avg(reward), 2) AS mean_reward FROM transitions_latest GROUP BY ALL ORDER BY ALL"
	@echo "\n   … where the largest rewards come from" && cd demo && ../$(BIN)/logforge sql \
	  "SELECT round(reward, 2) AS reward, action, locator FROM transitions_latest ORDER BY reward DESC, locator LIMIT 3"
	@echo "\n── 4. CQL, with cloning beside it" && cd demo && ../$(BIN)/logforge train datasets/default --out runs/default
	@echo "\n── 5. what it is worth on held-out episodes" && cd demo && ../$(BIN)/logforge evaluate runs/default

# Two workers of one thread each; the processes that tests start find logforge compiled.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

test: lint types $(STAMP)  ## lint, types and the test suite; docs/testing.md says what it leaves out
	$(PYTEST)

test-thorough: lint types $(STAMP)  ## the same with every test, and many more examples; before a release
	LOGFORGE_TEST_THOROUGH=1 $(PYTEST)

lint: $(STAMP)  ## ruff format and check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

# mypy does not follow the mapped folders of an editable install, so it reads them through a tree of links.
types: $(STAMP)  ## mypy, strict
	rm -rf .tree && mkdir -p $(TREE)
	ln -s $(CURDIR)/logforge/* $(CURDIR)/schemas $(CURDIR)/connectors $(TREE)/
	cd .tree && MYPYPATH=. ../$(BIN)/mypy --config-file ../pyproject.toml --cache-dir ../.mypy_cache -p logforge

bench: $(STAMP)  ## speed and memory, as ratios against a reference in the same run
	$(BIN)/python -m benchmarks

closed-loop: $(STAMP)  ## simulate, learn and play, ten fresh seeds; writes docs/benchmarks/closed-loop.md
	$(BIN)/python -m benchmarks.closed_loop

# One alone: the command that its page names. Each takes 5 to 20 minutes.
benchmark-pages: $(STAMP)  ## measure and write the long pages again: divergence, held-out, forgetting, credit (about an hour)
	$(BIN)/python -m benchmarks.divergence
	$(BIN)/python -m benchmarks.held_out
	$(BIN)/python -m benchmarks.forgetting
	$(BIN)/python -m benchmarks.credit_methods

docs: $(STAMP)  ## write the generated pages again (docs/cli.md, docs/tables.md)
	$(BIN)/python docs/generate.py

format: $(STAMP)  ## let ruff format and mend
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

.PHONY: help setup demo test test-thorough lint types bench closed-loop benchmark-pages docs format
