"""Compares a report with the right one, both as JSON: check.py REPORT EXPECTED"""

import json
import sys


def read(path):
    with open(path) as file:
        return json.load(file)


report, expected = map(read, sys.argv[1:])
different = [key for key in expected if not isinstance(report, dict) or report.get(key) != expected[key]]
sys.exit(f"wrong or missing: {', '.join(different)}" if different else 0)
