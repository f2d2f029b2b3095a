# Two commands: `make demo` runs the main job, `make test` passes the tests. Both set everything up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests of the neural room need torch of any build; where pip would bring a large one for GPUs, give
# another: make TORCH="torch --index-url ..."
TORCH ?= torch==2.13.0
WERROR := -C cmake.define.MEGALABEL_WERROR=ON

.PHONY: setup demo test test-native test-slow test-gpu test-sanitize test-hostile lint native \
	stubs clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml CMakeLists.txt $(wildcard native/* native/bindings/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet $(WERROR) --editable ".[dev,neural,onnx]"
	@touch $@

demo: setup
	$(BIN)/megalabel demo --out demo

test: setup test-native
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 -m "not slow and not gpu"

# The small pieces of the native core, without Python.
UNITS := $(CXX) -std=c++20 -g -O1 -Wall -Wextra -Werror -Inative native/tests/units.cpp -pthread
test-native:
	@mkdir -p build
	$(UNITS) -o build/units
	build/units

test-slow: setup
	$(BIN)/pytest -m "slow"

# Damaged files by the thousand: each is read or refused, in time and in bounded memory.
test-hostile: setup
	$(BIN)/python -m tests.hostile --corpora 20000 --folders 20000 --vocabularies 5000 --seed 1

test-gpu: setup
	$(BIN)/pytest -m "gpu"

# The native core under sanitizers, in a build and an environment of its own beside the tools of
# $(VENV): memory and undefined behaviour by the tests of the rooms that hand it arrays and files,
# the thread pool and small pieces by programs. Captured by pytest, what is said of a fault would be lost with it.
SANITIZED := build/sanitize
SANITIZED_TESTS ?= native store data linear retrieval rankers decision features labels calibration metrics
test-sanitize: setup
	$(BIN)/python -m venv --without-pip $(SANITIZED)/venv
	$(BIN)/python -c 'import sysconfig as s; print(s.get_path("purelib"))' > \
		$$($(SANITIZED)/venv/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/tools.pth
	$(BIN)/python -m pip --python $(SANITIZED)/venv/bin/python install --quiet --no-deps \
		--force-reinstall -C build-dir=$(SANITIZED)/build -C install.strip=false \
		$(WERROR) -C cmake.define.MEGALABEL_SANITIZE=address,undefined,float-cast-overflow .
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 MEGALABEL_THREADS=2 \
		$(SANITIZED)/venv/bin/python -m pytest -q --capture=sys -p no:cacheprovider \
		-m "not slow and not gpu" $(SANITIZED_TESTS:%=tests/%)
	$(CXX) -std=c++20 -g -O1 -fsanitize=thread -Inative native/tests/parallel.cpp -pthread \
		-o $(SANITIZED)/parallel
	TSAN_OPTIONS=halt_on_error=1 $(SANITIZED)/parallel
	$(UNITS) -D_GLIBCXX_ASSERTIONS -fsanitize=address,undefined,float-cast-overflow \
		-fno-sanitize-recover=all -o $(SANITIZED)/units
	$(SANITIZED)/units

lint: setup
	$(BIN)/ruff check --fix . && $(BIN)/ruff format . && $(BIN)/mypy

# Rebuilds the native core in place, for work on it: PYTHONPATH=src then finds it.
native:
	cmake -S . -B build/inplace -G Ninja -DPython_EXECUTABLE="$$(which python)" \
		-DMEGALABEL_WERROR=ON >/dev/null
	cmake --build build/inplace
	cmake --install build/inplace --prefix src >/dev/null

# What mypy knows of the native core, from the core as it is installed.
stubs: setup
	$(BIN)/python tools/make_stubs.py

clean:
	rm -rf $(VENV) build demo
