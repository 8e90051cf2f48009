#!/usr/bin/env bash
# tensorboard 2.21.0 and tensorboardX 2.6.5: rewards of a run, written and read again by its `EventAccumulator`
#
# Guess: as many values as were written, under their names.
# Behaviour: of more than 10,000 steps 10,000 are there, drawn with a fixed seed, the last among them; numbers are of
# 32 bits, so that 0.1 is not equal to 0.1, and 16777217 is another number. Signs in a name are underscores: "pass@1" and "pass_1"
# are one curve.
. "$(dirname "$0")/common.sh"
packages tensorboard==2.21.0 tensorboardX==2.6.5

cat >write.py <<'PYTHON'
from tensorboardX import SummaryWriter
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
with SummaryWriter("run") as writer:
    for step in range(12000):
        writer.add_scalar("reward", step, step)
    writer.add_scalar("tokens", 16777217, 0)
    writer.add_scalar("accuracy", 0.1, 0)
    writer.add_scalar("pass@1", 1, 0)
    writer.add_scalar("pass_1", 0, 0)
def steps(**how):
    events = EventAccumulator("run", **how).Reload()
    return [event.step for event in events.Scalars("reward")]
print(len(steps()), steps()[-1], steps() == steps(), len(steps(size_guidance={"scalars": 0})))
events = EventAccumulator("run").Reload()
print(events.Scalars("accuracy")[0].value == 0.1, int(events.Scalars("tokens")[0].value))
print(*sorted(events.Tags()["scalars"]), *(event.value for event in events.Scalars("pass_1")))
PYTHON
python write.py 2>errors >out || { cat errors >&2; exit 2; }
seen "of 12,000 steps: how many, the last, the same again, with size_guidance of 0" "$(sed -n 1p out)" "10000 11999 True 12000"
seen "0.1 is 0.1, and 16777217" "$(sed -n 2p out)" "False 16777216"
seen "pass@1 and pass_1" "$(sed -n 3p out)" "accuracy pass_1 reward tokens 1.0 0.0"
