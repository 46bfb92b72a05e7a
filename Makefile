# The commands of a checkout: each sets up what it needs by itself and may be repeated.
#
#   make            build into build/release
#   make demo       real programs with and without Overdrive, a table and a picture
#   make check      the tests, a representative part of the conformance suites, and lint
#   make check-all  also everything that takes hours; goes on where it was interrupted
#   make bench      measure; results go to docs/measurements
#   make conformance  the whole conformance suites; the table goes to docs/measurements
#   make fuzz TIME=1h [HOSTS=openmpi4,mpich4] [SEED=1]  random MPI programs; goes on where it ended
#   make install PREFIX=/where, make uninstall PREFIX=/where
#   make wheel      a wheel for pip into dist; make deb  Debian packages into dist/debian
#   make release VERSION=1.2.3 [DRY_RUN=1]  version, changelog, tag, packages, checksums, list of parts
#   make lint [TIDY=1], make format
#   make check PARTS="unit-release lint"   only these parts; make check-all FRESH=1 forgets results

PREFIX ?= /usr/local
PYTHON ?= python3
JOBS ?= $(shell nproc)
DESTDIR ?=
PARTS ?=

VENV := $(or $(OVERDRIVE_VENV_DIR),build/venv)
PACKAGES := $(PYTHON) tools/setup/packages.py
HOSTS := $(PYTHON) tools/hosts/hosts.py
# Nobody edits single files here: several are compiled as one.
CONFIGURE_FLAGS := -DOVERDRIVE_UNITY=ON -DOVERDRIVE_LTO_TARGETS=all $(if $(filter 1,$(OVERDRIVE_WERROR)),-DOVERDRIVE_WERROR=ON)

.PHONY: all release setup-build setup-tests setup-programs demo check check-all bench conformance \
	build fuzz install uninstall wheel deb lint format clean

all: build

# Without an mpi.h there is no face to build, so even a plain build asks for the host MPIs.
setup-build:
	@tools/setup/bootstrap $(PYTHON)
	@$(PACKAGES) build test
	@$(HOSTS) setup

setup-tests: setup-build
	@$(PACKAGES) lint conformance simulation network faults
	@$(PACKAGES) sanitizers || echo "setup: the sanitizers' builds use the compiler that is there"
	@$(PYTHON) tools/setup/environments.py > /dev/null

setup-programs: setup-build
	@$(PACKAGES) programs
	@$(PYTHON) tools/setup/environments.py > /dev/null

build: setup-build
	@cmake --preset release $(CONFIGURE_FLAGS)
	@cmake --build build/release -j $(JOBS)

demo: setup-programs build
	@$(VENV)/bin/python bench/demo.py

bench: setup-programs build
	@$(VENV)/bin/python bench/run.py
	@$(VENV)/bin/python bench/copy_paths.py
	@$(VENV)/bin/python bench/coll.py

conformance: setup-tests build
	@$(VENV)/bin/python tests/conformance/run.py --all

check: setup-tests setup-programs
	@$(VENV)/bin/python tools/check/check.py $(PARTS)

check-all: setup-tests setup-programs
	@$(PACKAGES) packages shells
	@$(VENV)/bin/python tools/check/check.py --all $(if $(FRESH),--fresh) $(PARTS)

# LAB=2x3 runs on two virtual nodes with three ranks each. Findings are kept in build/fuzz.
fuzz: setup-build build
	@$(VENV)/bin/python tests/fuzz/run.py --time $(or $(TIME),10m) $(if $(HOSTS),--hosts $(HOSTS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(LAB),--lab $(LAB))
	@$(VENV)/bin/python tests/switch/fuzz.py --seconds 60

install: build
	@cmake --install build/release --prefix "$(PREFIX)"

uninstall:
	@$(PYTHON) packaging/uninstall.py build/release --prefix "$(PREFIX)"

wheel: setup-build
	@$(PYTHON) packaging/wheel/build_wheel.py --jobs $(JOBS)

deb: setup-build
	@$(PACKAGES) packages
	@$(PYTHON) packaging/build_deb.py --jobs $(JOBS) $(if $(LTO),--lto $(LTO))

# With a version on the command line the work of a release, else the build of the preset "release".
ifeq ($(origin VERSION),command line)
release: setup-tests
	@$(PACKAGES) packages
	@$(PYTHON) packaging/release.py $(VERSION) $(if $(DRY_RUN),--dry-run)
else
release: build
endif

lint:
	@tools/setup/bootstrap $(PYTHON)
	@$(PACKAGES) lint
	@$(PYTHON) tools/setup/environments.py > /dev/null
	@$(VENV)/bin/python tools/lint/lint.py $(if $(TIDY),--tidy)

format:
	@tools/setup/bootstrap $(PYTHON)
	@$(PACKAGES) lint
	@$(PYTHON) tools/setup/environments.py > /dev/null
	@$(VENV)/bin/python tools/lint/lint.py --format

clean:
	rm -rf build/release build/dev build/asan build/tsan build/ubsan build/bench build/check build/check-all
