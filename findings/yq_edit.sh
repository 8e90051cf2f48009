#!/usr/bin/env bash
# yq 4.4.5 of PyPI with jq 1.6 (of the system): one value of a task's settings is set in place
#
# Guess: the other values stay as they are; comments may go.
# Behaviour: all of them go through JSON and jq: a commit 123e456 is 1.7976931348623157e+308, 3.10 is 3.1, 0755 is 755, 0o17 is 15, an
# id of 17 digits is another one, and a date is a text. Of two equal keys the first is gone. Anchors are copies.
. "$(dirname "$0")/common.sh"
needs jq
packages yq==4.4.5
jq --version

cat >task.yml <<'YAML'
steps: 10
commit: 123e456
language: 3.10
mode: 0755
umask: 0o17
id: 12345678901234567
day: 2026-01-31
limits: &limits {seconds: 60}
tests: *limits
name: a
name: b
YAML
venv/bin/yq -y -i '.steps = 20' task.yml
seen "the numbers" "$(sed 1,6!d task.yml | paste -s -d ';')" \
    "steps: 20;commit: 1.7976931348623157e+308;language: 3.1;mode: 755;umask: 15;id: 12345678901234568"
seen "the rest" "$(sed 1,6d task.yml | paste -s -d ';')" "day: '2026-01-31';limits:;  seconds: 60;tests:;  seconds: 60;name: b"
