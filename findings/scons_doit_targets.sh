#!/usr/bin/env bash
# SCons 4.11.1 and doit 0.37.0: a built file that an agent has changed, and a rule that has changed
#
# Guess: both compare contents, so that a built file with other contents is built again, and so is one whose rule has changed.
# Behaviour: only the contents of sources are compared: the changed file stays, all that is made of it is made anew from it, and both
# say that it is up to date. A changed command is run by SCons, and not by doit.
. "$(dirname "$0")/common.sh"
packages SCons==4.11.1 doit==0.37.0

cat >SConstruct <<'PYTHON'
environment = Environment()
environment.Command("built", "source", "cat $SOURCE > $TARGET # 1")
environment.Command("final", "built", "cat $SOURCE > $TARGET")
PYTHON
cat >dodo.py <<'PYTHON'
def task_built():
    return {"actions": ["cat source > built # 1"], "file_dep": ["source"], "targets": ["built"]}
def task_final():
    return {"actions": ["cat built > final"], "file_dep": ["built"], "targets": ["final"]}
PYTHON
build_scons() { venv/bin/scons -Q >log; xargs <final; }
build_doit() { venv/bin/doit >log; xargs <final; }
for tool in scons doit; do
    rm -f built final
    echo right >source
    seen "$tool: built" "$(build_$tool)" right
    echo wrong >built
    seen "$tool: after the built file was changed" "$(build_$tool)" wrong
    sed -i 's/# 1/# 2/' SConstruct dodo.py
    seen "$tool: after the rule was changed" "$(build_$tool)" "$([ $tool = scons ] && echo right || echo wrong)"
    sed -i 's/# 2/# 1/' SConstruct dodo.py
done
