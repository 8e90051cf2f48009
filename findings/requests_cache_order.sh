#!/usr/bin/env bash
# requests-cache 1.3.3: requests whose parameters, numbers or texts are the same ones in another order
#
# Guess: they are other requests, at least where a name occurs twice or the body is a list: the order says what a tool is asked.
# Behaviour: names and values of a query, of a form, and the parts of a body that is a JSON list are sorted for the key, so
# that `sort=name&sort=size` has the answer of `sort=size&sort=name`, and [2, 1] that of [1, 2]. A list within a JSON object
# keeps its order. `api_key` and `access_token` are left out, so that two accounts have one answer.
. "$(dirname "$0")/common.sh"
packages requests-cache==1.3.3

cat >ask.py <<'PYTHON'
import http.server, threading
import requests_cache
class Echo(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = self.path.encode() + b" " + self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(asked)))
        self.end_headers()
        self.wfile.write(asked)
    do_GET = do_POST
    def log_message(self, *arguments):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
session = requests_cache.CachedSession(backend="memory", allowable_methods=["GET", "POST"])
def show(*answers):
    print(*(answer.text.strip() for answer in answers))
show(*(session.get(f"{url}/{query}") for query in ("?sort=size&sort=name", "?sort=name&sort=size")))
show(*(session.post(f"{url}/list", json=body) for body in ([1, 2], [2, 1])))
show(*(session.post(f"{url}/form", data={"n": body}) for body in ([1, 2], [2, 1])))
show(*(session.post(f"{url}/object", json={"n": body}) for body in ([1, 2], [2, 1])))
show(*(session.get(f"{url}/mine?api_key={key}") for key in ("a", "b")))
PYTHON
python ask.py >out
seen "a query with a name twice, in both orders" "$(sed -n 1p out)" "/?sort=size&sort=name /?sort=size&sort=name"
seen "a JSON list in both orders" "$(sed -n 2p out)" "/list [1, 2] /list [1, 2]"
seen "a form in both orders" "$(sed -n 3p out)" "/form n=1&n=2 /form n=1&n=2"
seen "a list in a JSON object in both orders" "$(sed -n 4p out)" '/object {"n": [1, 2]} /object {"n": [2, 1]}'
seen "two keys of an API" "$(sed -n 5p out)" "/mine?api_key=a /mine?api_key=a"
