#!/usr/bin/env bash
# python-dateutil 4.0.0: dates that an agent answers, parsed and compared
#
# Guess: what a text leaves out is the first of its kind, or an error; a number is no date.
# Behaviour: what it leaves out is taken from the day on which the check runs, so that "March 2024" is another day on each of 31, and a
# reward of yesterday is not that of today. "10", "12.5" and "42" are dates. UTC+3 is three hours west of UTC, and +03 three hours east.
. "$(dirname "$0")/common.sh"
packages python-dateutil==4.0.0

cat >dates.py <<'PYTHON'
import warnings
from datetime import datetime
from dateutil import parser
warnings.simplefilter("ignore")
def on(day, text):
    return parser.parse(text, default=datetime(2026, *day))
now = datetime.now()
print(parser.parse("1 March").year == now.year, parser.parse("March 2024").day == min(now.day, 31))
print(*(on(day, "March 2024").date() == parser.parse("2024-03-01").date() for day in ((5, 1), (5, 2))))
print(*(on((5, 30), text).date() for text in ("10", "12.5", "42", "February 2024")))
print(*(parser.parse(f"10:00 {zone}").utcoffset().total_seconds() / 3600 for zone in ("UTC+3", "+03")))
PYTHON
python dates.py >out
seen "has 1 March this year, and March 2024 the day of today" "$(sed -n 1p out)" "True True"
seen "March 2024 is 2024-03-01: on 1 May, and on 2 May" "$(sed -n 2p out)" "True False"
seen "10, 12.5, 42 and February 2024, on 30 May 2026" "$(sed -n 3p out)" "2026-05-10 2026-05-12 2042-05-30 2024-02-29"
seen "hours east of UTC: UTC+3, +03" "$(sed -n 4p out)" "-3.0 3.0"
