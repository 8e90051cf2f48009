#!/usr/bin/env bash
# openai 3.57.0: `get_final_completion()` of a stream, from a server that repeats a call's name, and gives the tokens' ids
#
# Guess: as an answer without `stream`: the call has its id and its name, and what a server adds to each chunk is collected.
# Behaviour: texts of a message are joined, whatever they are: the call is `call_1call_1` of the function `addadd`. What stands
# beside the message's part, as vLLM's `token_ids`, is that of the first chunk and no more, while a list within it is joined;
# a reason to stop that comes in the last chunk is missing.
. "$(dirname "$0")/common.sh"
packages openai==3.57.0

cat >stream.py <<'PYTHON'
import http.server, json, threading
from openai import OpenAI
call = {"index": 0, "id": "call_1", "type": "function"}
parts = [
    ({"role": "assistant", "content": "", "tokens": [1]}, {"token_ids": [1]}),
    ({"content": "I add.", "tokens": [2]}, {"token_ids": [2]}),
    ({"tool_calls": [{**call, "function": {"name": "add", "arguments": '{"a": 1, '}}]}, {"token_ids": [3]}),
    ({"tool_calls": [{**call, "function": {"name": "add", "arguments": '"b": 2}'}}]}, {"token_ids": [4]}),
    ({}, {"token_ids": [5], "finish_reason": "tool_calls", "stop_reason": 5}),
]
class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta, beside in parts:
            choice = {"index": 0, "delta": delta, "finish_reason": None, **beside}
            chunk = {"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
server = http.server.HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = OpenAI(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "1 + 2?"}]) as stream:
    choice = stream.get_final_completion().choices[0]
(called,) = choice.message.tool_calls
print(called.id, called.function.name, called.function.arguments)
print(choice.token_ids, choice.message.tokens, choice.finish_reason, hasattr(choice, "stop_reason"))
PYTHON
python stream.py >out 2>errors || { cat errors >&2; exit 2; }
seen "id, name and arguments of the call" "$(sed -n 1p out)" 'call_1call_1 addadd {"a": 1, "b": 2}'
seen "ids of tokens beside and within the message, the reason to finish, is there a reason to stop" "$(sed -n 2p out)" \
    "[1] [1, 2] tool_calls False"
