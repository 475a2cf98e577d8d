# Two commands: `make demo` and `make test`. Both make their own .venv first. Beside
# them: `make docs` builds the site, `make dist` the packages.
# `make web-demo` shows what the first has trained in a browser.
PYTHON ?= python3
BIN := .venv/bin
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo web-demo test slow test-jax lint docs dist clean

demo: .venv/installed
	$(BIN)/python examples/demo.py

# The demo's model in a page: trains nothing. Its own port: make web-demo PORT=8080
PORT ?= 8000
web-demo: runs/demo/run.json .venv/installed
	$(BIN)/keras-luong export runs/demo --web runs/demo/web --quantize int8 --overwrite
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory runs/demo/web $(PORT)

runs/demo/run.json:
	@echo "There is no model yet. First: make demo" >&2; exit 1

# Two workers share two cores: one thread each is a little faster than two.
test slow: export TF_NUM_INTRAOP_THREADS ?= 1
test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -q

# Those of workers and of the server need Ray, which is installed beside for them.
slow: .venv/installed
	$(BIN)/python -m pip install --quiet --editable ".[ray]"
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile -q

# The layers' tests and the models' on JAX, which is installed beside for it.
test-jax: .venv/installed
	$(BIN)/python -m pip install --quiet jax
	$(BIN)/python -m pytest -m "slow or not slow" -q tests/test_backends.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy --config-file export/edge/pyproject.toml export/edge/keras_luong_edge

# The site, into site/: a warning is an error. What it needs is not among `dev`.
docs: export NO_MKDOCS_2_WARNING = 1
docs: .venv/docs
	$(BIN)/mkdocs build --quiet
	@echo "site/index.html; to read it: $(BIN)/mkdocs serve"

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	touch $@

# Both wheels and source distributions of what is committed, into dist/.
dist: .venv/installed
	$(BIN)/python export/packages.py dist

.venv/installed: pyproject.toml export/edge/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14) and f"Python 3.10 to 3.13 is needed, {sys.version.split()[0]} found: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[dev]" -e export/edge
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis build dist site *.egg-info \
		export/edge/build export/edge/*.egg-info \
		export/web/node_modules export/web/dist
