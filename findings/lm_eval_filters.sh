#!/usr/bin/env bash
# lm-eval 0.4.13: its filters `majority_vote` and `multi_choice_regex`, and the aggregation `median`
#
# Guess: unreadable answers have no vote; a choice counts where it stands as a word or a letter; the median of 0 and 1 is 0.5.
# Behaviour: answers in which no number was found are one answer, "[invalid]", and can win: three of them beat two of 42. A
# choice is found within other words, and the first one counts: "category" and "Not a cat, a dog" are cat; "The answer is B"
# is no answer, but with a colon it is. The median of 0 and 1 is 1.
. "$(dirname "$0")/common.sh"
packages_alone lm-eval==0.4.13
packages sacrebleu==2.6.0 numpy==2.3.4

cat >filter.py <<'PYTHON'
import sys
import sysconfig
import types
for name in ("lm_eval", "lm_eval.api", "lm_eval.filters"):  # their own would import what loads models
    sys.modules[name] = module = types.ModuleType(name)
    module.__path__ = [sysconfig.get_path("purelib") + "/" + name.replace(".", "/")]
from lm_eval.api.metrics import median
from lm_eval.filters.extraction import MultiChoiceRegexFilter, RegexFilter
from lm_eval.filters.selection import MajorityVoteFilter
answers = ["#### 42", "I give up.", "#### 42", "It is 42.", "Hm."]
print(*MajorityVoteFilter().apply(RegexFilter().apply([answers], [{}]), [{}]))
choices = MultiChoiceRegexFilter(regex_pattern=r"(\([A-Z]\))")
for answer in ("dog", "category", "Not a cat, a dog", "The answer is B", "The answer: B"):
    print(answer, choices.apply([[answer]], [{"choices": ["cat", "dog"]}])[0][0], sep=": ")
print(median([0, 1]))
PYTHON
python filter.py 2>errors >out || { cat errors >&2; exit 2; }
seen "the majority of 42, 42 and three others" "$(sed -n 1p out)" "['[invalid]']"
seen "cat or dog" "$(sed -n 2,4p out | paste -sd';')" "dog: (B);category: (A);Not a cat, a dog: (A)"
seen "letters" "$(sed -n 5,6p out | paste -sd';')" "The answer is B: [invalid];The answer: B: (B)"
seen "median of 0 and 1" "$(sed -n 7p out)" "1"
