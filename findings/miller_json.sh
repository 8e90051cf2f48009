#!/usr/bin/env bash
# Miller 6.6.0 (`mlr`, of Debian 12): a table of answers in CSV, as JSON, and the statistics of a column
#
# Guess: JSON that any program reads; a mean is the sum divided by the count.
# Behaviour: what looks like a number stays as it was written, without quotes: 0xff, .5, 1. and 0b11 are no JSON, while 007 is a text.
# In a column with a text among numbers, `stats1` counts the text, takes no notice of it in the sum, and divides by the number
# of numbers. Records with other fields make a second table in the same CSV.
. "$(dirname "$0")/common.sh"
command -v mlr >/dev/null || debian miller
needs mlr python3
mlr --version

json() { python3 -c 'import json, sys; json.load(sys.stdin)' 2>/dev/null && echo JSON || echo "no JSON"; }
for answer in 0xff .5 1. 0b11 007 1e3; do
    printf 'answer\n%s\n' "$answer" | mlr --icsv --ojson cat >out
    echo "$answer: $(grep -o ': .*' out | cut -c 3-), $(json <out)"
done >all
seen "as JSON" "$(paste -s -d ';' all)" '0xff: 0xff, no JSON;.5: .5, no JSON;1.: 1., no JSON;0b11: 0b11, no JSON;007: "007", JSON;1e3: 1e3, JSON'
seen "sum, mean and count of 1, 0 and failed" "$(printf 'reward\n1\n0\nfailed\n' | mlr --icsv --ocsv stats1 -a sum,mean,count -f reward | sed 1d)" "1,0.5,3"
seen "rows with other fields as CSV" "$(printf '{"a":1}{"b":2}' | mlr --ijson --ocsv cat | paste -s -d ' ')" "a 1  b 2"
