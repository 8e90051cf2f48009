# Shared by the scripts that install harnesses beside .venv, for the tests of tvsnap's plug-ins. Sourced, after common.sh.

pip_install() { "$VENV/bin/python" -m pip install --disable-pip-version-check "$@"; }

# What $VENV is made of with an interpreter; when it changes, $VENV is made anew.
venv_stamp() { # PYTHON
    pwd
    "$1" -c 'import sys; print(sys.version)'
    cat pyproject.toml setup.py scripts/beside.sh "scripts/$(basename "$0")" "$REQUIREMENTS" | sha256sum
}

# Makes $VENV with an interpreter, what $REQUIREMENTS lists, other packages without what they depend on, and tvsnap in
# editable mode; at once if nothing is missing.
make_venv() { # PYTHON WHAT [PACKAGE...]
    local python=$1 what=$2 name=${VENV#.venv-} wanted
    shift 2
    wanted=$(venv_stamp "$python")
    [ "$wanted" != "$(cat "$VENV/tvsnap.stamp" 2>/dev/null)" ] || return 0
    say "installing $what into $VENV, with $("$python" --version)"
    run_logged "$name-venv" "$python -m venv $VENV" "$python" -m venv --clear "$VENV"
    run_logged "$name" "pip install of $what" pip_install -r "$REQUIREMENTS"
    run_logged "$name-tvsnap" "pip install -e ." pip_install --no-deps --no-build-isolation -e . "$@"
    echo "$wanted" >"$VENV/tvsnap.stamp"
}

# Prints the first interpreter that is new enough: the one asked for, .venv's own, or one that lies where they usually do.
find_python() { # OLDEST [ASKED FOR]
    local python
    for python in "${2:-}" .venv/bin/python python3.12 python3.13 python3.14 python3 \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[2-9].*/bin/python; do
        if [ -n "$python" ] &&
            "$python" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < ($1))" 2>/dev/null; then
            "$python" -c 'import sys; print(sys._base_executable)'
            return
        fi
    done
}
