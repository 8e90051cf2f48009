#!/bin/bash
set -euo pipefail
cd /app/shop
git merge --quiet discounts && exit 1 # a conflict is expected

cat >prices.py <<'PYTHON'
"""Prices of orders, in whole cents."""

TAX = 19  # per cent


def total(lines, discount=0):
    """Returns what an order costs with tax, less a discount in per cent of the net price.

    Its lines are pairs of a unit price and a quantity.
    """
    net = sum(price * quantity for price, quantity in lines)
    net -= net * discount // 100
    return net + net * TAX // 100
PYTHON
sed -i -e '/^<<<<<<<\|^>>>>>>>/d' -e 's/^=======$/\n/' test_prices.py
python3 test_prices.py 2>&1 | tail -n 1
git commit --quiet --all --message "Merge branch 'discounts'"
git log --graph --format=%s
