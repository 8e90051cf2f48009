#!/usr/bin/env bash
# Docker Compose 2.26.1: numbers and dates in `environment`
#
# Guess: what stands behind the colon is the variable's value, as it is written; or what YAML 1.2 makes of it.
# Behaviour: each value is read by the rules of YAML 1.1 and of Go, and printed by Go: 3.10 becomes 3.1, 0755 and 0o755
# become 493, a date becomes a date with a time, a zone and its name. But 12:30, which YAML 1.1 reads as 750, and `yes`
# stay as they are.
. "$(dirname "$0")/common.sh"
"$here/../scripts/fetch_compose.sh" "$work"
./docker-compose version

cat >compose.yaml <<'END'
services:
  main:
    image: none
    environment: {V: 3.10, MODE: 0755, SEVEN: 0o7, BIG: 1000000.0, DAY: 2024-01-02, AT: 12:30, SURE: yes}
END
value() { sed -n "s/^      $1: //p" <(./docker-compose config); }
seen "3.10" "$(value V)" '"3.1"'
seen "0755" "$(value MODE)" '"493"'
seen "0o7" "$(value SEVEN)" '"7"'
seen "1000000.0" "$(value BIG)" '"1e+06"'
seen "2024-01-02" "$(value DAY)" '2024-01-02 00:00:00 +0000 UTC'
seen "12:30" "$(value AT)" '"12:30"'
seen "yes" "$(value SURE)" '"yes"'
