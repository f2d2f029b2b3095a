# Two commands: `make demo` runs the main job, `make test` passes the tests. Both set everything up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests of the neural room need torch of any build; where pip would bring a large one for GPUs, give
# another: make TORCH="torch --index-url ..."
TORCH ?= torch==2.13.0

.PHONY: setup demo test test-slow test-hostile lint native clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt $(wildcard native/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable ".[dev,neural,onnx]"
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

# Damaged files by the thousand: each is read or refused, in time and in bounded memory.
test-hostile: setup
	$(BIN)/python -m tests.hostile --corpora 20000 --seed 1

test-gpu: setup
	$(BIN)/pytest -m "gpu"

lint: setup
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/mypy

# Rebuilds the native core in place, for work on it: PYTHONPATH=src then finds it.
native:
	cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$$(which python)" >/dev/null
	cmake --build build/inplace
	cmake --install build/inplace --prefix src >/dev/null

clean:
	rm -rf $(VENV) build demo
