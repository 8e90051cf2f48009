#!/usr/bin/env bash
# tensorstore 0.1.86: arrays of the zarr driver, made smaller and larger, their parts, and lists
#
# Guess: what was cut off is gone; a part of an array is counted from 0, and -1 is its end; 2.7 for a whole number is an error in each form.
# Behaviour: an array of four that is resized to two and back has its old values again, as its chunk was kept. The object that `resize` was called on
# still has the old shape. a[1:3] goes from 1 to 3: its [1] is a[1], its [0] an error, and so is a[-1]. A list of 1.9 and 2.7 becomes 1 and 2, and an
# array of them is an error. `tensorstore.array` of an array is a view: a change of it is seen.
. "$(dirname "$0")/common.sh"
packages tensorstore==0.1.86 numpy==2.4.6

cat >views.py <<'PYTHON'
import numpy, tensorstore
def made(name):
    kvstore = {"driver": "file", "path": name}
    return tensorstore.open({"driver": "zarr", "kvstore": kvstore}, create=True, dtype=tensorstore.int32, shape=[4]).result()
def state(action):
    try:
        return action()
    except (IndexError, TypeError, ValueError) as error:
        return type(error).__name__
a = made("a")
a[...] = [1, 2, 3, 4]
small = a.resize(exclusive_max=[2]).result()
print(small.shape, a.shape, small.resize(exclusive_max=[4]).result().read().result())
part = a[1:3]
print(part.shape, part[1].read().result(), state(lambda: part[0]), state(lambda: a[-1]))
b = made("b")
b[...] = [1.9, 2.7, 3, 4]
print(b.read().result(), state(lambda: b.write(numpy.array([1.9, 2.7, 3, 4])).result()))
values = numpy.arange(4)
view = tensorstore.array(values)
values[0] = 99
print(view[0].read().result())
PYTHON
python views.py >out
seen "shapes of an array of four, resized to two, and of the object before; resized to four again" "$(sed -n 1p out)" "(2,) (4,) [1 2 3 4]"
seen "a[1:3]: its shape, [1], [0]; a[-1]" "$(sed -n 2p out)" "(2,) 2 IndexError IndexError"
seen "1.9 and 2.7 in a list, and in an array" "$(sed -n 3p out)" "[1 2 3 4] TypeError"
seen "an array that is changed behind tensorstore.array" "$(sed -n 4p out)" "99"
