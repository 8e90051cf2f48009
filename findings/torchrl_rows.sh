#!/usr/bin/env bash
# torchrl 0.14.1 with PyTorch 2.13.0: rows of a ReplayBuffer
#
# Guess: a row without a field is an error, or missing there; a row that is refused is not there; texts come back; a larger state does not fit into a smaller buffer.
# Behaviour: a row without a field keeps the field of the row whose place it takes; one that is refused for its type counts as a row, of which the memory
# is what it was, and the next goes behind it. With LazyMemmapStorage each text of a batch is the first one. A row read by an index is the buffer's
# own memory, a sample is not. A buffer of 3 has 6 rows once it has the state of a buffer of 10.
. "$(dirname "$0")/common.sh"
packages torch==2.13.0 numpy==2.3.4
packages torchrl==0.14.1 tensordict==0.14.3

cat >rows.py <<'PYTHON'
import torch
from tensordict import TensorDict
from torchrl.data import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer
def rows(**fields):
    return TensorDict(fields, [len(next(iter(fields.values())))])
def buffer(size, storage=LazyTensorStorage):
    return ReplayBuffer(storage=storage(size), batch_size=2)
one = buffer(3)
one.extend(rows(step=torch.tensor([1, 2, 3]), reward=torch.tensor([10, 20, 30])))
one.extend(rows(step=torch.tensor([4])))
print(one[:]["step"].tolist(), one[:]["reward"].tolist())
one = buffer(4)
one.extend(rows(reward=torch.tensor([1, 2])))
try:
    one.extend(rows(reward=torch.tensor([0.5])))
except RuntimeError:
    one.extend(rows(reward=torch.tensor([4])))
print(len(one), *(one[place]["reward"].item() for place in (0, 1, 3)))
for storage in (LazyTensorStorage, LazyMemmapStorage):
    texts = buffer(4, storage)
    texts.extend(TensorDict({"text": ["ls", "cat"], "step": torch.tensor([1, 2])}, [2]))
    print(list(texts[:]["text"]))
one = buffer(4)
one.extend(rows(reward=torch.tensor([1, 2])))
one[0]["reward"].fill_(7)
one.sample()["reward"].fill_(8)
print(one[:]["reward"].tolist())
large, small = buffer(10), buffer(3)
large.extend(rows(reward=torch.arange(6)))
small.load_state_dict(large.state_dict())
print(len(small))
PYTHON
python rows.py >said 2>errors || { cat errors >&2; exit 2; }
grep -v INFO said >out
seen "steps 4, 2, 3 and their rewards, where the fourth row has none" "$(sed -n 1p out)" "[4, 2, 3] [10, 20, 30]"
seen "rewards 1, 2, one that is refused, 4: rows, the first, second and fourth" "$(sed -n 2p out)" "4 1 2 4"
seen "texts ls and cat, in memory" "$(sed -n 3p out)" "['ls', 'cat']"
seen "in mapped memory" "$(sed -n 4p out)" "['ls', 'ls']"
seen "rewards 1, 2, after 7 was written to a row, and 8 to a sample" "$(sed -n 5p out)" "[7, 2]"
seen "rows in a buffer of 3 with the state of another one" "$(sed -n 6p out)" "6"
