# Shared by the scripts that install harnesses beside .venv, for the tests of tvsnap's plug-ins. Sourced, after common.sh.

pip_install() { "$VENV/bin/python" -m pip install --disable-pip-version-check "$@"; }

# What $VENV is made of with an interpreter; when it changes, $VENV is made anew.
venv_stamp() { # PYTHON
    pwd
    "$1" -c 'import sys; print(sys.version)'
    cat pyproject.toml setup.py scripts/beside.sh "scripts/$(basename "$0")" | sha256sum
}

# Makes $VENV with an interpreter, a function that fills it, and tvsnap in editable mode; at once if nothing is missing.
make_venv() { # PYTHON FUNCTION WHAT
    local python=$1 install=$2 what=$3 name=${VENV#.venv-} wanted
    wanted=$(venv_stamp "$python")
    [ "$wanted" != "$(cat "$VENV/tvsnap.stamp" 2>/dev/null)" ] || return 0
    say "installing $what into $VENV, with $("$python" --version)"
    run_logged "$name-venv" "$python -m venv $VENV" "$python" -m venv --clear "$VENV"
    run_logged "$name" "pip install of $what" "$install"
    run_logged "$name-tvsnap" "pip install -e ." pip_install -e .
    echo "$wanted" >"$VENV/tvsnap.stamp"
}
