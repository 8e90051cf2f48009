#!/usr/bin/env bash
# opentelemetry-sdk 1.45.2: a span of a call of a model, with more than 128 attributes or events, as of a long conversation
#
# Guess: the first 128 are kept, and later ones are dropped, as the specification has it of attributes beyond the limit.
# Behaviour: the last 128 are kept. What was set first is gone: the system's message, the model's name, the first tokens. Of
# attributes there is a line in the log; of events nothing but the count of dropped ones.
. "$(dirname "$0")/common.sh"
packages opentelemetry-sdk==1.45.2

cat >span.py <<'PYTHON'
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("probe")
with tracer.start_as_current_span("attributes") as span:
    span.set_attribute("gen_ai.request.model", "m")
    for turn in range(65):
        span.set_attribute(f"gen_ai.prompt.{turn}.role", "user" if turn else "system")
        span.set_attribute(f"gen_ai.prompt.{turn}.content", f"message {turn}")
with tracer.start_as_current_span("events") as span:
    for token in range(130):
        span.add_event("token", {"id": token})
attributes, events = exporter.get_finished_spans()
names = list(attributes.attributes)
print(len(names), names[0], names[-1])
print(len(events.events), events.events[0].attributes["id"], events.events[-1].attributes["id"], events.dropped_events)
PYTHON
python span.py >out 2>said || { cat said >&2; exit 2; }
seen "attributes, the first, the last" "$(sed -n 1p out)" "128 gen_ai.prompt.1.role gen_ai.prompt.64.content"
seen "events, the first, the last, count of dropped ones" "$(sed -n 2p out)" "128 2 129 2"
seen "what is said, of attributes alone" "$(sort -u said)" \
    "Attributes dict is full. Dropping the oldest key-value pair from attributes to make space for the new key-value pair."
