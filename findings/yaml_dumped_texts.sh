#!/usr/bin/env bash
# PyYAML 6.0.4 and ruamel.yaml 0.19.1: texts that one of them writes, and the other one reads
#
# Guess: a text stays a text, as both put quotes around what would be something else.
# Behaviour: each does so by its own version of YAML, 1.1 and 1.2. PyYAML writes the commit 123e456 without quotes, which is
# infinity for ruamel.yaml, and 12e4 and 0o17 are numbers. ruamel.yaml writes "no", "on" and 12:30 without quotes, which PyYAML
# reads as False, True and 750. The number 017 is 15 for one and 17 for the other.
. "$(dirname "$0")/common.sh"
packages PyYAML==6.0.4 ruamel.yaml==0.19.1

cat >through.py <<'PYTHON'
import io
import ruamel.yaml
import yaml
other = ruamel.yaml.YAML(typ="safe", pure=True)
def by_other(value):
    file = io.StringIO()
    other.dump(value, file)
    return file.getvalue()
for texts in (["123e456", "12e4", "0o17"], ["no", "on", "12:30"]):
    print(yaml.safe_load(yaml.safe_dump(texts)), other.load(yaml.safe_dump(texts)))
    print(other.load(by_other(texts)), yaml.safe_load(by_other(texts)))
print(yaml.safe_load("017"), other.load("017"))
PYTHON
python through.py >out
seen "written by PyYAML: read by it, and by ruamel.yaml" "$(sed -n 1p out)" "['123e456', '12e4', '0o17'] [inf, 120000.0, 15]"
seen "written by ruamel.yaml: read by it, and by PyYAML" "$(sed -n 2p out)" "['123e456', '12e4', '0o17'] ['123e456', '12e4', '0o17']"
seen "written by PyYAML: read by it, and by ruamel.yaml" "$(sed -n 3p out)" "['no', 'on', '12:30'] ['no', 'on', '12:30']"
seen "written by ruamel.yaml: read by it, and by PyYAML" "$(sed -n 4p out)" "['no', 'on', '12:30'] [False, True, 750]"
seen "017" "$(sed -n 5p out)" "15 17"
