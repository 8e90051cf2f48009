#!/bin/bash
set -euo pipefail
cd /app
# Requests are the lines of nine fields that have a method; the ids make each count once.
awk 'NF == 9 && $4 ~ /^[A-Z]+$/ && !seen[$3]++' logs/shop.log.2 logs/shop.log.1 logs/shop.log >requests
count=$(wc -l <requests)
errors=$(awk '$6 >= 500 { count[$2]++ } END { for (server in count) print server, count[server] }' requests | sort |
    awk '{ printf "%s\"%s\": %d", separator, $1, $2; separator = ", " }')
clients=$(awk '{ print $9 }' requests | sort --unique | wc -l)
p95=$(awk '{ print $8 + 0 }' requests | sort --numeric-sort | sed -n "$(((count * 95 + 99) / 100))p")
rm requests
cat >report.json <<JSON
{"requests": $count, "errors": {$errors}, "clients": $clients, "p95_ms": $p95}
JSON
cat report.json
