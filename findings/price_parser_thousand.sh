#!/usr/bin/env bash
# price-parser 0.5.1: the number in an answer
#
# Guess: a full stop, and a comma with three digits behind it, are read as in English; the sign counts; of several numbers the last, or none.
# Behaviour: a full stop before three digits at the end separates thousands: 12.345 is 12345, 0.001 is 1 and 1.000 is 1000, but 1.0000 is 1.
# There are no signs: -5 is 5. Of "Answer: 2 of 3" and of a fraction the first number counts; what stands behind it, as "million" and e3, is left
# out; a number before % is none; "free" is 0.
. "$(dirname "$0")/common.sh"
packages price-parser==0.5.1

cat >read.py <<'PYTHON'
from price_parser import parse_price
for text in ("12.345", "0.001", "1.000", "1.0000", "-5", "$-5", "1.2 million", "1.5e3", "1/2", "20%", "free", "3 items for $10"):
    print(parse_price(text).amount)
PYTHON
python read.py >out
line=0
number() { line=$((line + 1)); seen "$1" "$(sed -n ${line}p out)" "$2"; }
number 12.345 12345
number 0.001 1
number 1.000 1000
number 1.0000 1.0000
number -5 5
number '$-5' 5
number '1.2 million' 1.2
number 1.5e3 1.5
number 1/2 1
number 20% None
number free 0
number '3 items for $10' 3
