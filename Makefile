.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python

# Static, so that PID 1 of a sandbox needs nothing of the image it runs in.
NATIVE_FLAGS := -O2 -static -Wall -Wextra
# Of no C library, so that it can be loaded with any.
LIBRARY_FLAGS := -O2 -shared -fPIC -nostdlib -fvisibility=hidden -fno-builtin -fno-stack-protector -U_FORTIFY_SOURCE \
                 -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,--hash-style=gnu -Wall -Wextra
PLUGIN := tvsnap/backends/local/criu_plugin/interrupted
REWIND := tvsnap/backends/local/tvsnap-rewind.so
NATIVE := $(if $(wildcard tvsnap/guest/*.c),tvsnap/guest/tvsnap-init tvsnap/guest/tvsnap-fixed.so) \
          $(if $(wildcard tvsnap/backends/local/launch.c),tvsnap/backends/local/tvsnap-launch) \
          $(if $(wildcard $(PLUGIN).c),$(PLUGIN).so) $(if $(wildcard tvsnap/backends/local/rewind.c),$(REWIND))

.PHONY: help setup engines native demo test fuzz bench soak lint format clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: ## install whatever is missing: system packages, CRIU, .venv
	@scripts/setup.sh

engines: ## install the container engines that tests and benchmarks use; start none
	@scripts/install_engines.sh

native: $(NATIVE) ## compile the C programs that run inside and around a sandbox

tvsnap/guest/tvsnap-init: $(wildcard tvsnap/guest/*.c tvsnap/guest/*.h)
tvsnap/backends/local/tvsnap-launch: $(addprefix tvsnap/backends/local/,launch.c owners.c owners.h) \
                                    tvsnap/guest/resource_limits.h
# Renamed into place: a running sandbox may be executing the old binary.
tvsnap/guest/tvsnap-init tvsnap/backends/local/tvsnap-launch: Makefile
	$(CC) $(NATIVE_FLAGS) -o $@.new $(filter %.c,$^)
	@mv $@.new $@

tvsnap/guest/tvsnap-fixed.so: Makefile $(wildcard tvsnap/guest/preload/*.c tvsnap/guest/preload/*.h)
	$(CC) $(LIBRARY_FLAGS) -Wl,-soname,tvsnap-fixed.so -o $@.new $(filter %.c,$^)
	@mv $@.new $@

# CRIU would load anything named *.so in its directory.
$(PLUGIN).so: $(PLUGIN).c Makefile
	$(CC) $(LIBRARY_FLAGS) -Wl,-z,defs -o $@.new $<
	@mv $@.new $@

$(REWIND): tvsnap/backends/local/rewind.c Makefile
	$(CC) -O2 -shared -fPIC -Wall -Wextra -o $@.new $<
	@mv $@.new $@

demo: setup ## run a few rollouts without and with the cache, and show what that saved
	@.venv/bin/tvsnap demo

lint: setup ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# What fails is tried once more, and shown: a machine under load is late. Counterexamples of properties are not.
test: lint engines ## lint, type-check and run the test suite
	@images=$$(mktemp -d) && trap 'rm -rf "$$images"' EXIT && export TVSNAP_TEST_IMAGES=$$images && \
	$(PY) -m pytest -rs -n 6 --reruns 1

fuzz: setup engines ## look for histories that see through the cache what they do not see without (FUZZ_SECONDS=600)
	@$(PY) -m tests.fuzz

bench: setup engines ## run the benchmarks
	@$(PY) -m benchmarks

soak: setup ## thousands of rollouts: does anything grow, or become slower?
	@$(PY) -m benchmarks.soak

format: setup ## format the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove what was built here (not the data directory, not the kept CRIU)
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(NATIVE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
