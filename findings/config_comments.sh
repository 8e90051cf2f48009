#!/usr/bin/env bash
# ruamel.yaml 0.19.1 and tomlkit 0.15.2: settings with comments, of which an agent removes or adds one
#
# Guess: a comment above a setting belongs to it: it goes where the setting goes, and the others stay.
# Behaviour: ruamel.yaml keeps the comment of the removed setting, which now stands above the next one, whose own comment is
# gone. tomlkit keeps both, so that two comments stand above one setting. What is added to a table comes below the comment on the
# next table, and to dotted keys behind the first of them.
. "$(dirname "$0")/common.sh"
packages ruamel.yaml==0.19.1 tomlkit==0.15.2

cat >edit.py <<'PYTHON'
import io
import ruamel.yaml
import tomlkit
def edit_yaml(text, change):
    yaml = ruamel.yaml.YAML()
    settings = yaml.load(text)
    change(settings)
    file = io.StringIO()
    yaml.dump(settings, file)
    print(repr(file.getvalue()))
def edit_toml(text, change):
    settings = tomlkit.parse(text)
    change(settings)
    print(repr(tomlkit.dumps(settings)))
edit_yaml("steps: 10\n\n# never above 1\nrate: 0.5\n\n# in seconds\nlimit: 30\n", lambda settings: settings.pop("rate"))
edit_toml("[run]\nsteps = 10\n# never above 1\nrate = 0.5\n# in seconds\nlimit = 30\n", lambda settings: settings["run"].pop("rate"))
edit_toml("[run]\nsteps = 10\n\n# for tests only\n[fake]\na = 1\n", lambda settings: settings["run"].update(limit=30))
edit_toml("run.a = 1\nrun.b = 2\n", lambda settings: settings["run"].update(c=3))
PYTHON
python edit.py >out
seen "YAML, without rate" "$(sed -n 1p out)" "'steps: 10\n\n# never above 1\nlimit: 30\n'"
seen "TOML, without rate" "$(sed -n 2p out)" "'[run]\nsteps = 10\n# never above 1\n# in seconds\nlimit = 30\n'"
seen "TOML, with one more setting of a table" "$(sed -n 3p out)" "'[run]\nsteps = 10\n\n# for tests only\nlimit = 30\n[fake]\na = 1\n'"
seen "TOML, with one more dotted key" "$(sed -n 4p out)" "'run.a = 1\nrun.c = 3\nrun.b = 2\n'"
