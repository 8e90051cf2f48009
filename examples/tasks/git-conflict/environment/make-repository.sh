#!/bin/bash
# Makes the repository of the task: make-repository.sh DIRECTORY. The commits are the same each time.
set -euo pipefail

git config --system user.name "Kim Okoro"
git config --system user.email "kim@example.com"
git config --system init.defaultBranch main
git init --quiet "$1"
cd "$1"

commit() {
    local date="2026-03-$1T10:00:00Z"
    shift
    git add --all
    GIT_AUTHOR_DATE=$date GIT_COMMITTER_DATE=$date git commit --quiet --message "$*"
}

printf '__pycache__/\n' >.gitignore
cat >prices.py <<'PYTHON'
"""Prices of orders, in whole cents."""


def total(lines):
    """Returns what an order costs; its lines are pairs of a unit price and a quantity."""
    return sum(price * quantity for price, quantity in lines)
PYTHON
cat >test_prices.py <<'PYTHON'
import unittest

from prices import total


class Total(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(total([]), 0)


if __name__ == "__main__":
    unittest.main()
PYTHON
commit 02 "Prices of orders"

git switch --quiet --create discounts
cat >prices.py <<'PYTHON'
"""Prices of orders, in whole cents."""


def total(lines, discount=0):
    """Returns what an order costs, less a discount in per cent; its lines are pairs of a unit price and a quantity."""
    net = sum(price * quantity for price, quantity in lines)
    return net - net * discount // 100
PYTHON
sed -i '/^if __name__/i\
class Discount(unittest.TestCase):\
    def test_all_of_it(self):\
        self.assertEqual(total([(1000, 2)], discount=100), 0)\
\
    def test_half_is_less(self):\
        self.assertLess(total([(1000, 2)], discount=50), total([(1000, 2)]))\
\
' test_prices.py
commit 04 "Discounts"

git switch --quiet main
cat >prices.py <<'PYTHON'
"""Prices of orders, in whole cents."""

TAX = 19  # per cent


def total(lines):
    """Returns what an order costs with tax; its lines are pairs of a unit price and a quantity."""
    net = sum(price * quantity for price, quantity in lines)
    return net + net * TAX // 100
PYTHON
sed -i '/^if __name__/i\
class Tax(unittest.TestCase):\
    def test_tax(self):\
        self.assertEqual(total([(1000, 2)]), 2380)\
\
    def test_rounded_down(self):\
        self.assertEqual(total([(99, 1)]), 117)\
\
' test_prices.py
commit 05 "Tax"
