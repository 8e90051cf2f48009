#!/usr/bin/env bash
# Pint 0.25.3: answers with units, as texts
#
# Guess: "5 ft 3 in" is 63 inches and "10 000 m" ten kilometres, or they are errors; letters of another case are an error, or do not matter.
# Behaviour: what stands side by side is multiplied: 15 foot * inch, 30 hour * minute, and "10 000 m" is 0 m. A line end or a sign that it
# does not know is left out or multiplies: "12:30" is 360, "5 ± 0.1 m" 0.5 m, "1.000,5 m" 1.0005 m. "5 Min" are megainches, "5 Mb"
# megabarns, "1 year in days" has an inch in it, and one per second, 1 Hz, is not 60 rpm but 9.5 of them. A comma is left out: "2,5 m" is 25 m.
. "$(dirname "$0")/common.sh"
packages Pint==0.25.3

cat >read.py <<'PYTHON'
import pint
read = pint.UnitRegistry()
for text in ("5 ft 3 in", "1 hour 30 min", "10 000 m", "12:30", "5 ± 0.1 m", "2,5 m", "5 Min", "5 Mb", "1 year in days"):
    print(read(text))
print(round(read("1 Hz").to("rpm").magnitude, 1))
print(read("0.1 m") * 3 == read("0.3 m"), read("1 Nm") == read("1 J"))
PYTHON
python read.py >out
seen "5 ft 3 in" "$(sed -n 1p out)" "15 foot * inch"
seen "1 hour 30 min" "$(sed -n 2p out)" "30 hour * minute"
seen "10 000 m" "$(sed -n 3p out)" "0 meter"
seen "12:30" "$(sed -n 4p out)" "360 dimensionless"
seen "5 ± 0.1 m" "$(sed -n 5p out)" "0.5 meter"
seen "2,5 m" "$(sed -n 6p out)" "25 meter"
seen "5 Min" "$(sed -n 7p out)" "5 megainch"
seen "5 Mb" "$(sed -n 8p out)" "5 megabarn"
seen "1 year in days" "$(sed -n 9p out)" "1 day * inch * year"
seen "1 Hz in rpm" "$(sed -n 10p out)" "9.5"
seen "0.3 m and three times 0.1 m; Nm and J" "$(sed -n 11p out)" "False False"
