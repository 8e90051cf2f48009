#!/usr/bin/env bash
# VCR.py 9.4.2: recorded calls of a language model, replayed in another order or with another prompt
#
# Guess: a request is found again by its URL and its body; a prompt that was never recorded is an error.
# Behaviour: the body does not count: each POST to the same address gets the next recorded answer, whatever it asks, so
# that parallel rollouts exchange their answers. match_on has to name "body".
. "$(dirname "$0")/common.sh"
packages vcrpy==9.4.2

cat >replay.py <<'PYTHON'
import http.server, json, threading, urllib.request
import vcr
class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["prompt"]
        answer = json.dumps({"answer": f"about {asked}"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
def ask(prompt):
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps({"prompt": prompt}).encode(), headers)
    return json.load(urllib.request.urlopen(request))["answer"]
def replay(*prompts, **options):
    with vcr.use_cassette("calls.yaml", **options):
        return ", ".join(map(ask, prompts))
print(replay("one", "two"))
print(replay("two", "one"))
print(replay("never asked"))
print(replay("two", "one", match_on=["method", "uri", "body"]))
PYTHON
python replay.py >out
seen "recorded: one, two" "$(sed -n 1p out)" "about one, about two"
seen "replayed: two, one" "$(sed -n 2p out)" "about one, about two"
seen "replayed: never asked" "$(sed -n 3p out)" "about one"
seen "replayed with match_on body: two, one" "$(sed -n 4p out)" "about two, about one"
