#!/usr/bin/env bash
# hydra-core 1.3.8 with omegaconf 2.3.1: a value in the file of a training's settings, and the same text on the command line
#
# Guess: the same value in both places, and texts stay texts.
# Behaviour: the file is read by YAML 1.1 and the command line by a grammar of Hydra: 010 is 8 in the file and "010" on the command line,
# 12:30 is 750, `on` is True, and 0x1f is 31 in the file alone. A commit like 123e456 is infinity in both. A prompt with ${name} is
# a reference to a setting, and raises when it is read. For a field of type str, True is the text "True"; for bool, 2 is True.
. "$(dirname "$0")/common.sh"
packages hydra-core==1.3.8 omegaconf==2.3.1

cat >values.py <<'PYTHON'
from dataclasses import dataclass
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
parser = OverridesParser.create()
for text in ("010", "12:30", "on", "0x1f", "123e456", "nan", "1_000"):
    print(text, repr(OmegaConf.create(f"a: {text}").a), repr(parser.parse_override(f"a={text}").value()))
settings = OmegaConf.create({"prompt": "Pay ${amount} to ${name}."})
try:
    print(settings.prompt)
except Exception as error:
    print(type(error).__name__)
@dataclass
class Settings:
    answer: str = ""
    tools: bool = False
typed = OmegaConf.structured(Settings)
typed.answer, typed.tools = True, 2
print(typed)
PYTHON
python values.py >out
seen "010, in the file and on the command line" "$(sed -n 1p out)" "010 8 '010'"
seen "12:30" "$(sed -n 2p out)" "12:30 750 '12:30'"
seen "on" "$(sed -n 3p out)" "on True 'on'"
seen "0x1f" "$(sed -n 4p out)" "0x1f 31 '0x1f'"
seen "123e456" "$(sed -n 5p out)" "123e456 inf inf"
seen "nan" "$(sed -n 6p out)" "nan 'nan' nan"
seen "1_000" "$(sed -n 7p out)" "1_000 1000 1000"
seen "a prompt with \${amount}" "$(sed -n 8p out)" "InterpolationKeyError"
seen "True for str, 2 for bool" "$(sed -n 9p out)" "{'answer': 'True', 'tools': True}"
