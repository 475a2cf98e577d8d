# Two commands: `make demo` and `make test`. Both make their own .venv first. Beside
# them: `make docs` builds the site, `make dist` the packages.
# `make web-demo` shows what the first has trained in a browser.
PYTHON ?= python3
BIN := .venv/bin
export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: demo web-demo test fast slow tenth mutants test-jax lint reference docs dist \
	clean

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
test slow tenth: export TF_NUM_INTRAOP_THREADS ?= 1
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal -q
test: .venv/installed
	@$(MAKE) --silent --jobs 2 fast lint

fast: .venv/installed
	$(PYTEST)

# What takes longer, JAX and all; it ends with what was skipped, and why. Ray and JAX are
# installed beside for it.
slow: .venv/installed
	$(BIN)/python -m pip install --quiet --editable ".[ray]" jax
	$(PYTEST) -m slow -r s

# A tenth of it, of what is installed: make tenth TENTH=3
TENTH ?= 0
tenth: .venv/installed
	$(PYTEST) -m slow -r s --tenth $(TENTH)

# How many changes of the code a test catches, see tests/mutants.py:
# make mutants FILE=keras_luong/layers/scores.py MUTANTS=50
MUTANTS ?= 400
SEED ?= 0
mutants: .venv/installed
	$(BIN)/python -m pip install --quiet cosmic-ray
	$(BIN)/python tests/mutants.py --mutants $(MUTANTS) --seed $(SEED) \
		$(if $(FILE),--file $(FILE)) $(if $(RESULTS),--results $(RESULTS))

# The layers' tests and the models' on JAX alone.
test-jax: .venv/installed
	$(BIN)/python -m pip install --quiet jax
	$(BIN)/python -m pytest -m "slow or not slow" -q tests/test_backends.py

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/mypy --config-file export/edge/pyproject.toml export/edge/keras_luong_edge

# The page of the commands, from what their help says.
reference: .venv/installed
	$(BIN)/python docs/site/command_line.py

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
