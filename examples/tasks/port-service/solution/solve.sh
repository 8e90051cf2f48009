#!/bin/bash
# The header is no stock, nothing in stock is no reason for a 404, and one thread that answers once is not enough.
set -euo pipefail
cd /app
sed -i \
    -e 's/PORT = 8008/PORT = 8080/' \
    -e 's/for name, stock in csv.reader(file)}/for name, stock in list(csv.reader(file))[1:]}/' \
    -e 's/STOCK.get(name):/name in STOCK:/' \
    -e 's/HTTPServer/ThreadingHTTPServer/' \
    -e 's/handle_request()/serve_forever()/' \
    inventory.py
python3 inventory.py </dev/null >inventory.log 2>&1 &

until (: </dev/tcp/127.0.0.1/8080) 2>/dev/null; do
    kill -0 $! 2>/dev/null # or else it has ended
done
echo "listening on port 8080"
