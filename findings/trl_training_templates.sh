#!/usr/bin/env bash
# TRL 1.16.0 (Jinja2 3.1.6): the chat templates that it puts in place of a model's own ones for training
#
# Guess: a dialogue has the text that the model's own template makes, so that the model learns what it is asked later; or, as they are
# for multi-turn training, what a longer dialogue begins with is the shorter one.
# Behaviour: for Qwen3, each earlier answer has its thoughts, or an empty pair of tags, and the model's own template drops both. For GLM-4
# and Nemotron, the thoughts of an answer are gone as soon as a question follows, as without TRL. For DeepSeek-V3, R1 and Nemotron, what the model
# is asked ends with an open tag, and an answer without thoughts begins without one, or with an empty pair: it is no continuation.
. "$(dirname "$0")/common.sh"
packages Jinja2==3.1.6
packages_alone trl==1.16.0

cat >render.py <<'PYTHON'
import importlib.util, json
import jinja2
import jinja2.ext
import jinja2.sandbox
class Generation(jinja2.ext.Extension):  # the tag of transformers, which marks what a model wrote
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("inner"), [], [], body).set_lineno(line)
    def inner(self, caller):
        return caller()
# As transformers makes it.
environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
folder = importlib.util.find_spec("trl").submodule_search_locations[0] + "/chat_templates/"
def render(name, messages, **more):
    template = environment.from_string(open(folder + name + ".jinja").read())
    return template.render(messages=messages, bos_token="", eos_token="", **more)
question, answer = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
thoughtful = {"role": "assistant", "content": "<think>\nT\n</think>\n\nA"}
for name in ("llama3", "qwen2_5", "qwen3", "glm4moe", "nemotron_3_nano", "deepseekv3", "deepseek_r1_distill"):
    training = name + "_training"
    plain = [question, answer, question, answer]
    turns = [question, thoughtful, question]
    print(
        render(name, plain) == render(training, plain),
        render(name, turns) == render(training, turns),
        render(training, turns).startswith(render(training, turns[:2])),
        render(training, plain[:2]).startswith(render(training, plain[:1], add_generation_prompt=True)),
        sep="; ")
print(render("qwen3", plain).count("<think>"), render("qwen3_training", plain).count("<think>"))
PYTHON
python render.py >out
echo "a plain dialogue as by its own; one with thoughts; a longer one begins with it; the answer continues the prompt"
line=0
alike() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
alike Llama-3 "True; True; True; True"
alike Qwen2.5 "True; True; True; True"
alike Qwen3 "False; False; True; True"
alike GLM-4 "False; True; False; True"
alike "Nemotron 3 Nano" "True; True; False; False"
alike DeepSeek-V3 "True; True; True; False"
alike "DeepSeek-R1's distilled ones" "True; False; True; False"
alike "Qwen3: pairs of tags for two plain answers, by its own template and TRL's" "1 2"
