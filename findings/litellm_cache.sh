#!/usr/bin/env bash
# litellm 1.110.2: its cache, with options of sampling that OpenAI's interface does not name, and with another server
#
# Guess: a call that differs in anything that is sent is another call, so that the server is asked again.
# Behaviour: the key has the options that litellm knows by name. Calls that differ in `min_p`, `repetition_penalty`,
# `extra_body` (as `chat_template_kwargs`, or a grammar) or the server's address are one: the answer of the first is given.
. "$(dirname "$0")/common.sh"
packages litellm==1.110.2 openai==3.57.0 fastapi==0.165.0 orjson==3.13.0 soundfile==0.14.0 # a hit is an error without the last three

cat >cache.py <<'PYTHON'
import http.server, json, threading
import litellm
def serve(name):
    class Server(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass
        def do_POST(self):
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = " ".join([name, *sorted(set(sent) - {"model", "messages"})])
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            answer = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
first, second = serve("first"), serve("second")
def ask(server=first, **options):
    messages = [{"role": "user", "content": "?"}]
    answer = litellm.completion(model="openai/m", messages=messages, api_base=server, api_key="none", caching=True, **options)
    print(answer.choices[0].message.content)
litellm.cache = litellm.Cache(type="local")
ask()
ask(seed=1)
ask(min_p=0.5)
ask(repetition_penalty=2.0)
ask(extra_body={"chat_template_kwargs": {"enable_thinking": False}})
ask(second)
litellm.cache = litellm.Cache(type="local")
ask(second, min_p=0.5)
PYTHON
LITELLM_LOCAL_MODEL_COST_MAP=True python cache.py >out 2>errors || { cat errors >&2; exit 2; }
seen "no option, and a seed" "$(sed -n 1,2p out | paste -sd,)" "first,first seed"
seen "min_p, repetition_penalty, extra_body, the other server" "$(sed -n 3,6p out | paste -sd,)" "first,first,first,first"
seen "the same in an empty cache" "$(sed -n 7p out)" "second min_p"
