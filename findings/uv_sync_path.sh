#!/usr/bin/env bash
# uv 0.13.9: a project with a package of a local path, of which the code was changed, and `uv sync`
#
# Guess: the changed package is built and installed, as by `uv pip install ./package` and `pip install ./package`.
# Behaviour: it counts as changed only if `pyproject.toml`, `setup.py`, `setup.cfg` or the folder `src` has: a module beside them is
# that of the first build, also in a new environment, as the cache has it. `--reinstall-package NAME` builds it again, as
# does `uv pip install`, each time.
. "$(dirname "$0")/common.sh"
packages uv==0.13.9
export UV_CACHE_DIR=$work/cache UV_NO_CONFIG=1
unset VIRTUAL_ENV

mkdir package project
cat >package/pyproject.toml <<'END'
[build-system]
requires = ["setuptools==80.9.0"]
build-backend = "setuptools.build_meta"
[project]
name = "reward"
version = "1"
[tool.setuptools]
py-modules = ["reward"]
END
cat >project/pyproject.toml <<'END'
[project]
name = "task"
version = "1"
requires-python = ">=3.9"
dependencies = ["reward"]
[tool.uv.sources]
reward = { path = "../package" }
END
cd project
uv() { "$work/venv/bin/uv" "$@" >log 2>&1 || { cat log >&2; exit 2; }; }
value() { .venv/bin/python -c 'import reward; print(reward.VALUE)'; }
sync() { uv sync --python "$work/venv/bin/python" "$@"; value; }
echo 'VALUE = "first"' >../package/reward.py
seen "first" "$(sync)" first
echo 'VALUE = "second"' >../package/reward.py
seen "with a changed module" "$(sync)" first
rm -r .venv
seen "in a new environment" "$(sync)" first
seen "with --reinstall-package" "$(sync --reinstall-package reward)" second
echo 'VALUE = "third"' >../package/reward.py
uv pip install ../package
seen "by uv pip install" "$(value)" third
touch ../package/pyproject.toml
echo 'VALUE = "fourth"' >../package/reward.py
seen "with a new time of pyproject.toml" "$(sync)" fourth
