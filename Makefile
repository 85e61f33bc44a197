# make demo   a virtual environment, then everything from training to the report
# make test   a virtual environment, then lint, types and tests (TYPE_CHECKS=all make test: the innermost modules too)
# make bench  speed and memory against the textbook model and TransformerLens
# make lint   ruff and mypy only
# make script the page's script: format, lint and types (needs npm; its tests run in make test too)

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready

.PHONY: demo test lint script bench clean

demo: $(READY)
	$(BIN)/interp run models/recipes/shakespeare-char.toml --out models/demo

test: lint
	$(BIN)/pytest -n auto -m "not browser"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

script:
	cd tests/page && npm ci --silent --no-audit --no-fund && npm run --silent check && npm test --silent

bench: $(READY)
	$(BIN)/python tests/benchmarks/speed.py

clean:
	rm -rf $(VENV) tests/page/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis caches models/demo reports/demo

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev,shakespeare]"
	touch $(READY)
