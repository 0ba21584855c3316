# Every target creates .venv by itself; nothing is reinstalled while pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Bytecode is kept whatever the shell says: hundreds of processes import the same modules.
RUN    := env -u PYTHONPATH -u PYTHONDONTWRITEBYTECODE

.PHONY: verify test test-units test-clusters test-slow test-slow-clusters test-lowest lint bench docs pages web dist fresh mutate clean

# Three seeds cannot confirm every claim: undecided (exit code 3) is an honest outcome here, a FAIL or ERROR is not.
verify: $(VENV)/.installed
	$(RUN) $(BIN)/assay verify --out assay-runs/verify || test $$? -eq 3

# Three things at once: a cluster mostly waits, a browser and a type checker use one core, the rest uses them all.
test: $(VENV)/.test
	+$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint test-units test-clusters

# A worker that the kernel kills is a failure at once: where it is replaced, pytest-xdist can wait for ever for the next.
test-units: $(VENV)/.test
	$(RUN) $(BIN)/python -m pytest -n auto --max-worker-restart=0 --dist loadfile -m "not slow and not ray and not browser and not site"

# One at a time: there is one Ray on a machine, and the site is built once. A test keeps the marks in these folders.
test-clusters: $(VENV)/.test
	$(RUN) $(BIN)/python -m pytest -m "(ray or browser or site) and not slow" tests/browser tests/faults tests/docs/test_site.py

# Trainings, crowds, compilers, a wheel in an empty environment, and the tutorials as a reader runs them.
test-slow: $(VENV)/.test
	$(RUN) $(BIN)/python -m pytest -n auto --max-worker-restart=0 --dist loadgroup -m "slow and not ray"

# By hand, on an idle machine: Ray gives its workers the lowest priority, and beside busy cores a benchmark starves.
test-slow-clusters: $(VENV)/.test
	$(RUN) $(BIN)/python -m pytest -m "slow and ray" tests/faults

# The lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest: build/lowest/.test
	$(RUN) build/lowest/bin/python -m pytest -n auto --max-worker-restart=0 --dist loadfile -m "not slow and not browser"

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(VENV)/.test
	$(RUN) $(BIN)/python -m benchmarks

# The site, offline, with warnings as errors; then every link of what came out.
docs: $(VENV)/.docs
	$(RUN) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(RUN) $(BIN)/python docs/machinery/links.py build/docs

# Outputs and pictures of the pages, made again; minutes, and a Chromium for the pictures.
pages: $(VENV)/.test
	$(RUN) $(BIN)/python docs/machinery/gallery.py
	$(RUN) $(BIN)/python docs/machinery/blocks.py README.md $$(grep -rl "<!-- output -->" docs --include=*.md)

web:
	cd web && npm ci && npm run build

# The sdist and the wheel, looked into, installed into an empty environment and used there.
dist: $(VENV)/.dist
	$(RUN) $(BIN)/python tests/fresh/dist.py

# A new machine, played: committed files, an empty HOME, few programs, the README's commands, their times.
fresh:
	$(PYTHON) tests/fresh/run.py

# Would the tests notice? A sample of changes of one line; the same command goes on where it was stopped.
mutate: $(VENV)/.test
	$(RUN) $(BIN)/python tests/mutation/mutate.py

clean:
	rm -rf $(VENV) build dist

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e ".[control]"
	touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) -e ".[test]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) -e ".[docs]"
	touch $@

$(VENV)/.dist: $(VENV)/.installed
	$(PIP) -e ".[dist]"
	touch $@

build/lowest/.test: pyproject.toml tests/fresh/lowest.py
	test -x build/lowest/bin/python || $(PYTHON) -m venv build/lowest
	$(PYTHON) tests/fresh/lowest.py > build/lowest/lowest.txt
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check -c build/lowest/lowest.txt -e ".[test]"
	touch $@
