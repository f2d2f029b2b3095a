# Two commands: `make demo` runs the main job, `make test` passes the tests. Both set everything up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test test-slow lint native clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: setup
	$(BIN)/megalabel demo --out demo

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "not slow and not gpu"

test-slow: setup
	$(BIN)/pytest -m "slow"

lint: setup
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/mypy

# Rebuilds the native core in place, for work on it: PYTHONPATH=src then finds it.
native:
	cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$$(which python)" >/dev/null
	cmake --build build/inplace
	cmake --install build/inplace --prefix src >/dev/null

clean:
	rm -rf $(VENV) build demo
