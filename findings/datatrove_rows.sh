#!/usr/bin/env bash
# datatrove 0.10.1: rollouts in JSON lines, read and written by a pipeline
#
# Guess: each row is a document, or an error; `*.jsonl` of the folder are read; the pipeline with more input or another step runs anew.
# Behaviour: rows with an empty text, without one, and lines that are no JSON are left out, with a warning at most; a field of the row replaces that of its
# `metadata`. Hidden files count for `*.jsonl`, and without a pattern a README and files of subfolders do as well. A run with a new file and another filter
# does nothing, as all tasks "have already been completed", and the earlier output stays.
. "$(dirname "$0")/common.sh"
packages dill==0.4.1 fsspec==2026.9.0 huggingface-hub==2.4.0 humanize==4.17.0 loguru==0.7.3 multiprocess==0.70.19 numpy==2.4.6 orjson==3.13.0 regex==2026.11.19 tqdm==4.70.1
packages_alone datatrove==0.10.1

cat >pipeline.py <<'PYTHON'
import json, pathlib
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter
folder = pathlib.Path("rollouts")
(folder / "old").mkdir(parents=True)
rows = ({"text": "one"}, {"text": ""}, {"prompt": "?"}, {"text": None}, {"text": "five", "metadata": {"reward": 1}, "reward": 2})
(folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"text": "cut of\n' + json.dumps({"text": "seven"}) + "\n")
for document in JsonlReader("rollouts")():
    print(document.text, document.id, document.metadata.get("reward", "-"), end="; ")
print()
for name in (".draft.jsonl", "README.md", "old/b.jsonl"):
    (folder / name).write_text(json.dumps({"text": name}) + "\n")
print(*(document.text for document in JsonlReader("rollouts")()))
def run(keep):
    reader = JsonlReader("rollouts", glob_pattern="*.jsonl")
    pipeline = [reader, LambdaFilter(keep), JsonlWriter("written", compression=None)]
    LocalPipelineExecutor(pipeline=pipeline, tasks=1, logging_dir="log").run()
    return [json.loads(line)["text"] for line in (pathlib.Path("written") / "00000.jsonl").read_text().splitlines()]
print(*run(lambda document: True))
(folder / "c.jsonl").write_text(json.dumps({"text": "eight"}) + "\n")
print(*run(lambda document: document.text != "one"))
PYTHON
python pipeline.py 2>errors >out || { cat errors >&2; exit 2; }
seen "text, id and reward of the rows that are read" "$(sed -n 1p out)" "one a.jsonl/0 -; five a.jsonl/4 2; seven a.jsonl/6 -; "
seen "of all files" "$(sed -n 2p out)" ".draft.jsonl README.md one five seven old/b.jsonl"
seen "by a pipeline for *.jsonl" "$(sed -n 3p out)" ".draft.jsonl one five seven"
seen "with one more file, and a filter against one" "$(sed -n 4p out)" ".draft.jsonl one five seven"
seen "what it says" "$(grep -c "have already been completed" errors)" "1"
