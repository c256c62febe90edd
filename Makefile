# The targets a newcomer needs. Everything is installed into .venv; `make test` also installs the
# servers and programs that the tests start (see tools/install_test_programs.sh).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= data
# `make up PORT=9000`: the API there, the link of nodes on the two ports above it.
PORT ?=
DEMO_PORTS ?=
# Half of the time tests wait: more workers than cores.
WORKERS ?= 4
ROUNDS ?= 20
MINUTES ?= 30
PIP := $(BIN)/pip --disable-pip-version-check --quiet
# Whole files, in the order of tests/conftest.py: the longest first.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 4

.PHONY: up down setup test system unit coverage durations check hooks bench traps docs wire client lock soak clean

up: $(VENV)/.runtime  ## run everything on this machine, in the foreground, with a demo group
	@trap : INT; $(BIN)/corral up --data $(DATA) --demo $(if $(DEMO_PORTS),--demo-ports $(DEMO_PORTS)) \
		$(if $(PORT),--http 127.0.0.1:$(PORT) --grpc 127.0.0.1:$$(($(PORT) + 1))) \
		|| { code=$$?; [ $$code -eq 130 ] || exit $$code; }  # Ctrl-C is no failure

down: $(VENV)/.runtime  ## stop what `make up` started, instances included
	$(BIN)/corral down --data $(DATA)

setup: $(VENV)/.dev  ## install all that development needs
	tools/install_test_programs.sh

# Else each of the many processes that the tests start would compile all of our sources anew.
test system unit soak coverage durations: export PYTHONDONTWRITEBYTECODE =

test: setup  ## all tests but those that take long
	$(PYTEST) -m "not system" --durations=40

system: setup  ## the tests that take long: whole processes, guides, campaigns
	$(PYTEST) -m system --durations=40

unit: $(VENV)/.dev  ## the quick tests alone, without those of the repository itself
	$(PYTEST) -q -m "not system" tests/unit --ignore=tests/unit/house

coverage: setup  ## how much of the code 'make test' runs; what it starts as processes does not count
	$(PYTEST) -q -m "not system" --cov --cov-report=term --cov-report=html

durations: setup  ## measure how long each test file takes; see tests/durations.json
	$(PYTEST) -q --junitxml=build/tests.xml
	$(BIN)/python tools/update_durations.py build/tests.xml

soak: setup  ## long campaigns, then all tests again and again
	$(BIN)/python -m campaigns.absent_nodes --histories 200
	$(BIN)/python -m campaigns.faults --minutes $(MINUTES) --store sqlite
	$(BIN)/python -m campaigns.faults --minutes $(MINUTES) --store postgres
	$(BIN)/python -m campaigns.decisions --minutes $(MINUTES) --store sqlite
	$(BIN)/python -m campaigns.decisions --minutes $(MINUTES) --store postgres
	$(BIN)/python -m campaigns.scaling --minutes $(MINUTES) --store sqlite
	$(BIN)/python -m campaigns.scaling --minutes $(MINUTES) --store postgres
	$(BIN)/python -m campaigns.changes --minutes $(MINUTES) --store sqlite
	$(BIN)/python -m campaigns.changes --minutes $(MINUTES) --store postgres
	for round in $$(seq $(ROUNDS)); do CORRAL_EXPLORE=1 $(PYTEST) -q || exit 1; done

check: $(VENV)/.dev  ## style, types, import directions, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/generate_wire.py --check
	$(BIN)/python tools/generate_client.py --check
	$(BIN)/python tools/generate_docs.py --check

hooks: $(VENV)/.dev  ## have git run the quick checks before a commit, types before a push
	$(BIN)/pre-commit install

bench: $(VENV)/.dev  ## every claim of ours, with its floor
	$(BIN)/python -m benchmarks

traps: $(VENV)/.dev  ## each trap of the specification and the tests that close it
	@$(BIN)/python tools/list_traps.py

docs: $(VENV)/.dev  ## write the generated reference pages
	$(BIN)/python tools/generate_docs.py

wire: $(VENV)/.dev  ## write the generated protocol code
	$(BIN)/python tools/generate_wire.py

client: $(VENV)/.dev  ## write the generated part of the Python client
	$(BIN)/python tools/generate_client.py

lock:  ## pin all dependencies anew
	tools/lock.sh

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/pip:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(VENV)/bin/pip requirements/runtime.lock pyproject.toml
	@echo "installing what Corral needs into $(VENV): about a minute, once"
	$(PIP) install --no-deps --require-hashes -r requirements/runtime.lock
	$(PIP) install --no-deps -e .
	$(PIP) check
	touch $@

$(VENV)/.dev: $(VENV)/bin/pip requirements/dev.lock pyproject.toml
	$(PIP) install --no-deps --require-hashes -r requirements/dev.lock
	$(PIP) install --no-deps -e .
	$(PIP) check
	touch $@ $(VENV)/.runtime
