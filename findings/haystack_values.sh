#!/usr/bin/env bash
# haystack-ai 3.4.1: components between a model and its tools
#
# Guess: an answer that the schema refuses is not validated; a cleaner keeps lines; "NOT" excludes what any condition has; what has no match is no answer.
# Behaviour: `JsonSchemaValidator` passes the answer [] by a schema of an object. `DocumentCleaner` makes one line of a program. NOT of two conditions excludes
# what has both, and 1 is true. `AnswerBuilder` takes the first match, and makes "" of an answer without one. `DocumentJoiner` in the mode "merge" halves the
# score of what one of two lists has.
. "$(dirname "$0")/common.sh"
packages haystack-ai==3.4.1

cat >values.py <<'PYTHON'
from haystack import Document
from haystack.components.builders import AnswerBuilder
from haystack.components.joiners import DocumentJoiner
from haystack.components.preprocessors import DocumentCleaner
from haystack.components.validators import JsonSchemaValidator
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import InMemoryDocumentStore
validator = JsonSchemaValidator({"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]})
for text in ('{"answer": 42}', '{"answer": "no"}', "[]", "42"):
    print(*validator.run([ChatMessage.from_assistant(text)]), end=" ")
print()
print(repr(DocumentCleaner().run([Document(content="def f():\n    return 1\n")])["documents"][0].content))
store = InMemoryDocumentStore()
store.write_documents([Document(content=name, meta={"passed": passed}) for name, passed in (("a", 1), ("b", 0), ("c", True))])
def found(*conditions):
    conditions = [{"field": field, "operator": "==", "value": value} for field, value in conditions]
    return "".join(document.content for document in store.filter_documents({"operator": "NOT", "conditions": conditions}))
print(found(("meta.passed", 1)), found(("meta.passed", 0), ("content", "a")))
answers = AnswerBuilder(pattern="Answer: (.*)").run(query="?", replies=["Answer: 6, no\nAnswer: 7", "I do not know"])["answers"]
print([answer.data for answer in answers])
joined = DocumentJoiner(join_mode="merge").run([[Document(content="a", score=0.9)], [Document(content="b", score=0.8)]])
print([document.score for document in joined["documents"]])
PYTHON
python -W ignore values.py 2>errors >out || { cat errors >&2; exit 2; }
seen "a right object, a wrong one, [] and 42" "$(sed -n 1p out)" "validated validation_error validated validation_error "
seen "a program behind the cleaner" "$(sed -n 2p out)" "'def f(): return 1'"
seen "of a with 1, b with 0, c with true: NOT 1, NOT 0 and a" "$(sed -n 3p out)" "b abc"
seen "answers" "$(sed -n 4p out)" "['6, no', '']"
seen "scores 0.9 and 0.8 of two lists, merged" "$(sed -n 5p out)" "[0.45, 0.4]"
