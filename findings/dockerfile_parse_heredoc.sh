#!/usr/bin/env bash
# dockerfile-parse 2.0.1: a Dockerfile of a task with two stages, a here-document, and defaults of variables
#
# Guess: the instructions, base images and variables that Docker sees.
# Behaviour: each line of a here-document is an instruction, so that a line of a script that begins with "from" is the base image
# of one more stage, and "RUN <<EOF" has no content. A stage that builds on another lacks its variables, as $A in a label;
# ${D:-x} is the text ":-x}", also in FROM, where it makes an image that does not exist.
. "$(dirname "$0")/common.sh"
packages dockerfile-parse==2.0.1

cat >parse.py <<'PYTHON'
from dockerfile_parse import DockerfileParser
def parse(*lines):
    parser = DockerfileParser("Dockerfile")
    parser.content = "".join(line + "\n" for line in lines)
    return parser
script = parse("FROM python:3.11", "RUN <<EOF python3", "from pathlib import Path", "print(Path())", "EOF")
print(script.baseimage, script.parent_images, [part["instruction"] for part in script.structure])
stages = parse("FROM debian:12 AS base", "ENV A=1", "FROM base", "LABEL a=$A", "ENV B=$A-2")
print(stages.labels, stages.envs)
one = parse("FROM debian:12", "ENV A=1", "LABEL a=$A", "ENV B=$A-2")
print(one.labels, one.envs)
print(parse("ARG TAG", "FROM debian:${TAG:-12}", "ENV D=${D:-x}").parent_images, parse("FROM debian:12", "ENV D=${D:-x}").envs)
PYTHON
python parse.py >out
seen "a script of Python: base image, all of them, instructions" "$(sed -n 1p out)" \
    "pathlib ['python:3.11', 'pathlib'] ['FROM', 'RUN', 'FROM', 'PRINT(PATH())', 'EOF']"
seen "label and variables of a stage on another" "$(sed -n 2p out)" "{'a': ''} {'B': '-2'}"
seen "in one stage" "$(sed -n 3p out)" "{'a': '1'} {'A': '1', 'B': '1-2'}"
seen 'FROM debian:${TAG:-12}, ENV D=${D:-x}' "$(sed -n 4p out)" "['debian::-12}'] {'D': ':-x}'}"
