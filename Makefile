.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python

# What the C compiler makes code for, and what it has against a forged return or jump there.
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
JUMPS_x86_64 := -fcf-protection
JUMPS_aarch64 := -mbranch-protection=standard
# Unlike glibc, musl takes requests of ioctl for signed, so that the signs of numbers are not looked at.
WARNINGS := -Wall -Wextra -Werror -Wshadow -Wformat=2 -Wconversion -Wno-sign-conversion
HARDENED := -O2 -D_GNU_SOURCE $(WARNINGS) $(JUMPS_$(MACHINE)) -Wl,-z,noexecstack -Inative
GUARDED := $(HARDENED) -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -Wl,-z,relro -Wl,-z,now

# Static, so that PID 1 of a sandbox needs nothing of the image it runs in. With musl, since glibc asks the processor for
# its caches whenever a program starts, which takes a virtual machine longer than all else that these do at a start.
# musl has no headers of the kernel: those of the system come after its own.
MUSL := musl-gcc
NATIVE_FLAGS := -static $(GUARDED) -idirafter /usr/include -idirafter /usr/include/$(shell $(CC) -print-multiarch)
# Of no C library, so that it can be loaded with any: nothing there would say that a stack was overwritten, and symbols are
# looked up when they are first used, as not every library has them all. In one mapping, since every program loads it.
LIBRARY_FLAGS := $(HARDENED) -shared -fPIC -nostdlib -fvisibility=hidden -fno-builtin -fno-stack-protector \
                 -U_FORTIFY_SOURCE -Wl,-z,noseparate-code -Wl,-z,norelro -Wl,--hash-style=gnu
# Where what is compiled goes, in the package.
BIN := tvsnap/host/bin
NATIVE := $(addprefix $(BIN)/,tvsnap-init tvsnap-fixed.so tvsnap-launch tvsnap-rewind.so tvsnap-look.so criu_plugin/interrupted.so allowed.h)

.PHONY: help setup engines page browser harbor harnesses openhands training constraints native demo train-demo unit test short test-all budgets fuzz zoo bench soak lint format docs dist clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## install whatever is missing: system packages, CRIU, .venv
	@scripts/setup.sh

engines: ## install the container engines that tests and benchmarks use; start none
	@scripts/install_engines.sh

page: ## build the page that the server has from page/, with npm; the result is committed
	@cd page && npm ci --ignore-scripts --no-audit --no-fund --silent && npx tsc && node build.mjs

browser: setup ## install what tests of the page use: the distribution's Chromium, and packages of npm where npm is there
	@scripts/install_browser.sh

harbor: setup ## install Harbor beside .venv, for the tests of its plug-in, where there is Python 3.12 or newer
	@scripts/install_harbor.sh

harnesses: setup ## install mini-swe-agent, Inspect and SWE-ReX beside .venv, for the tests of their plug-ins
	@scripts/install_harnesses.sh

openhands: setup ## install OpenHands' SDK beside .venv, for the tests of its plug-in, where there is Python 3.12 or newer
	@scripts/install_openhands.sh

training: setup ## install PyTorch, PEFT and a small model beside .venv, for the tests of tvsnap.training
	@scripts/install_training.sh

constraints: setup ## renew the versions of packages that the tests run with (tests/constraints)
	@scripts/renew_constraints.sh

native: $(NATIVE) ## compile the C programs that run inside and around a sandbox

$(NATIVE): Makefile | $(BIN)/criu_plugin
$(BIN)/criu_plugin:
	@mkdir -p $@

# Renamed into place: a running sandbox may be executing the old binary.
$(BIN)/tvsnap-init: $(wildcard native/init/*.c native/init/*.h native/*.h)
$(BIN)/tvsnap-launch: $(wildcard native/launch/*.c native/launch/*.h native/*.h)
$(BIN)/tvsnap-init $(BIN)/tvsnap-launch:
	@command -v $(MUSL) >/dev/null || { echo "$(MUSL) is missing: apt-get install musl-tools" >&2; exit 1; }
	$(MUSL) $(NATIVE_FLAGS) -o $@.new $(filter %.c,$^)
	@mv $@.new $@

$(BIN)/tvsnap-fixed.so: $(wildcard native/preload/*.c native/preload/*.h)
	$(CC) $(LIBRARY_FLAGS) -Wl,-soname,tvsnap-fixed.so -o $@.new $(filter %.c,$^)
	@mv $@.new $@

# CRIU would load anything named *.so in its directory.
$(BIN)/criu_plugin/interrupted.so: native/criu_plugin/interrupted.c
	$(CC) $(LIBRARY_FLAGS) -Wl,-z,defs -o $@.new $(filter %.c,$^)
	@mv $@.new $@

REWIND := $(filter-out %/elsewhere.c,$(wildcard native/rewind/*.c))
ifneq ($(MACHINE),x86_64)
REWIND := native/rewind/elsewhere.c
endif
$(BIN)/tvsnap-rewind.so: $(REWIND) $(wildcard native/rewind/*.h native/*.h)
	$(CC) $(GUARDED) -shared -fPIC -fvisibility=hidden -Wl,-z,defs -o $@.new $(filter %.c,$^)
	@mv $@.new $@

# With what tvsnap-init has for the same, so that both tell the same; but for what would end the process (`die`).
LOOK := $(wildcard native/look/*.c) \
        $(addprefix native/init/,attributes.c basics.c entry.c expiry.c hash.c holds.c proc.c terminal_state.c)
$(BIN)/tvsnap-look.so: $(LOOK) $(wildcard native/look/*.h native/init/*.h native/*.h)
	$(CC) $(GUARDED) -shared -fPIC -fvisibility=hidden -ffunction-sections -Wl,--gc-sections -Wl,-z,defs -o $@.new $(LOOK)
	@mv $@.new $@

# The list of system calls, which the Docker backend reads, too.
$(BIN)/allowed.h: native/allowed.h
	@cp $< $@.new && mv $@.new $@

demo: ## run a few rollouts without and with the cache, and show what that saved
	@scripts/setup.sh plain
	@.venv/bin/tvsnap demo

train-demo: training ## train a small policy from three seeds; tables and a plot of how it learns (build/training)
	@.venv/bin/tvsnap image build terminal && .venv-train/bin/python -m tvsnap.training.experiment --seeds 0 1 2 --processes 3

lint: setup ## ruff, mypy, and the floors that imports keep to
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

unit: setup ## the tests that need neither root nor images nor an engine
	@$(PY) -m pytest -n 2 -p no:cacheprovider tests/unit tests/fakes tests/priors

test: setup ## lint, type-check, and run the tests that need nothing else than make setup installs: before each merge
	@$(MAKE) --no-print-directory --jobs 2 lint short

short: setup
	@$(PY) -m pytest --short -q -rfEs -n auto

test-all: lint engines browser harbor harnesses openhands training ## the same, and all other tests: before it is said that something works
	@$(PY) -m pytest -q -rfEs -n auto

budgets: setup ## count what calls, forks and the like cost, and record it as what they may cost (tests/counts)
	@$(PY) -m tests.counts

fuzz: setup engines ## look for histories that see through the cache what they do not see without (FUZZ_SECONDS=600)
	@seconds=$${FUZZ_SECONDS:-600}; found=0; \
	$(PY) -m tests.fuzz.interfaces --seconds $$((seconds / 10)) --seed $${FUZZ_SEED:-$$(date +%s)} || found=1; \
	$(PY) -m tests.fuzz --seconds $$((seconds - seconds / 10)) || found=$$?; exit $$found

zoo: setup ## run some forty real programs, and write docs/zoo.md (ONLY=name for one of them, or for a group)
	@$(PY) -m tests.zoo $(if $(ONLY),"$(ONLY)")

bench: setup engines ## run the benchmarks
	@$(PY) -m benchmarks

soak: setup ## thousands of rollouts: does anything grow, or become slower?
	@$(PY) -m benchmarks.soak

format: setup ## format the code
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# The site's tools are installed by this target alone: neither `make setup` nor the tests need them.
docs: setup .venv/docs.stamp ## build the documentation site into build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "build/site/index.html; with search: $(PY) -m http.server --directory build/site"

.venv/docs.stamp: pyproject.toml
	$(PY) -m pip install --disable-pip-version-check --quiet -e '.[docs]'
	@touch $@

dist: setup ## build the wheel that others install, the source archive, and the sources of what is linked in
	@scripts/build_dist.sh

clean: ## remove what was built here (not the data directory, not the kept CRIU)
	rm -rf .venv .venv-harbor .venv-harnesses .venv-openhands .venv-train build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f $(NATIVE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
