#!/usr/bin/env bash
# setuptools 80.9.0 with pip (of the system's Python): `pip install .` after a module was removed from a package
#
# Guess: what is installed is what the sources have, as each build is isolated and pip replaces what it had installed before.
# Behaviour: the module is installed again, from the folder `build` that the first build has left in the sources. It is there
# in a new environment, too; a patch that removes or renames a module is not seen by the tests. Changes of a module are.
. "$(dirname "$0")/common.sh"
packages setuptools==80.9.0 wheel==0.45.1
python -m pip --version | cut -d ' ' -f 1,2

mkdir -p project/src/task
cat >project/pyproject.toml <<'END'
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "task"
version = "1"
END
echo 'VERSION = "old"' >project/src/task/__init__.py
echo 'ANSWER = 42' >project/src/task/solution.py
install() {
    python -m pip --disable-pip-version-check install --quiet --no-build-isolation --no-index ./project >said 2>&1 || { cat said >&2; exit 2; }
    python -c 'import task; print(task.VERSION)
try:
    import task.solution; print("there")
except ImportError:
    print("gone")' | xargs
}
seen "first build" "$(install)" "old there"
rm project/src/task/solution.py
echo 'VERSION = "new"' >project/src/task/__init__.py
seen "after a module was changed, and another removed" "$(install)" "new there"
python -m pip uninstall --quiet --yes task
seen "uninstalled, and built again" "$(install)" "new there"
rm -r project/build
seen "without the folder 'build'" "$(install)" "new gone"
