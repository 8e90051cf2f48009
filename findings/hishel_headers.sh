#!/usr/bin/env bash
# hishel 2.0.0: its client of HTTPX with the options of default, for tools of policies that fetch pages
#
# Guess: a cache of HTTP follows Cache-Control and Vary.
# Behaviour: each successful GET is kept, also with no-store, and for other headers that Vary names, so that a rollout in one
# language gets the page of another. With rfc=True it follows the headers. The cache lies in the current folder, and so in its snapshots.
. "$(dirname "$0")/common.sh"
packages 'hishel[httpx]==2.0.0'

cat >fetch.py <<'PYTHON'
import http.server, os, threading
from hishel.httpx import CacheClient
class Server(http.server.BaseHTTPRequestHandler):
    number = 0
    def do_GET(self):
        Server.number += 1
        answer = str(Server.number).encode()
        self.send_response(200)
        self.send_header("Cache-Control", "no-store" if self.path == "/once" else "max-age=60")
        self.send_header("Vary", "Accept-Language")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
site = f"http://127.0.0.1:{server.server_port}"
for options in ({}, {"rfc": True}):
    with CacheClient(**options) as client:
        def different(path, *languages):
            return len({client.get(site + path, headers={"Accept-Language": each}).text for each in languages})
        print(different("/once", "en", "en"), different("/page", "en", "en"), different("/page", "en", "de"))
print(os.listdir(".cache"))
PYTHON
python fetch.py 2>errors >out || { cat errors >&2; exit 2; }
seen "different answers: no-store twice, max-age twice, for two languages" "$(sed -n 1p out)" "1 1 1"
seen "the same with rfc=True" "$(sed -n 2p out)" "2 1 2"
seen "below the current folder" "$(sed -n 3p out)" "['hishel']"
