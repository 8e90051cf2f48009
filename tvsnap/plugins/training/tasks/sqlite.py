"""Tasks on SQLite's databases, at a shell."""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft, write

_TABLES = """
CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER, number INTEGER);
"""
_CHECKS = f"shop = Sqlite('/app/shop.db', {_TABLES!r})\nkeep('schema', shop.has_its_schema)\n"
Item = tuple[int, str, int]
Order = tuple[int, int, int]


def shop(chance: random.Random) -> tuple[str, list[Item], list[Order]]:
    """Returns the command that makes a database, its items (id, name, price) and its orders (id, item, number)."""
    items = [(number, name, chance.randint(1, 90)) for number, name in enumerate(chance.sample(WORDS, 5), 1)]
    orders = [(number, chance.randint(1, 5), chance.randint(1, 9)) for number in range(1, chance.randint(8, 16))]
    script = _TABLES.lstrip()
    script += "".join(f"INSERT INTO items VALUES {item};\n" for item in items)
    script += "".join(f"INSERT INTO orders VALUES {order};\n" for order in orders)
    return f"{write('/app/shop.sql', script)}\ncd /app && sqlite3 shop.db < shop.sql && rm shop.sql", items, orders


def question(chance: random.Random) -> Draft:
    setup, items, orders = shop(chance)
    id, name, price = chance.choice(items)
    number = sum(count for _, item, count in orders if item == id)
    total = number * price
    query = f"SELECT coalesce(sum(number * price), 0) FROM orders JOIN items ON items.id = item WHERE name = '{name}'"
    return Draft(
        "The SQLite database /app/shop.db has the tables items (id, name, price) and orders (id, item, number). What "
        f"do all orders of {name} (id {id}, price {price}) cost together? Write the number to /app/answer.txt. "
        "Leave the database as it is.",
        setup,
        f"{_CHECKS}goal('answer', lambda: value(text('/app/answer.txt')) == {total})\n"
        f"keep('rows', lambda: shop.holds({ {'items': items, 'orders': orders}!r}))\n",
        [
            [f'sqlite3 /app/shop.db "{query}" > /app/answer.txt'],
            ["cd /app", "sqlite3 shop.db .schema", f'sqlite3 shop.db "{query}"', f"echo {total} > answer.txt"],
        ],
        [
            [f'sqlite3 /app/shop.db "{query}"'],
            [f"echo {total + 1} > /app/answer.txt"],
            [f"rm /app/shop.db; echo {total} > /app/answer.txt"],
        ],
    )


def change(chance: random.Random) -> Draft:
    setup, items, orders = shop(chance)
    id, name, price = chance.choice(items)
    new = price + chance.randint(1, 20)
    after = [(each, called, new if each == id else cost) for each, called, cost in items]
    return Draft(
        f"In the table items (id, name, price) of the SQLite database /app/shop.db, set the price of {name} from "
        f"{price} to {new}, and change nothing else.",
        setup,
        f"{_CHECKS}goal('items', lambda: shop.holds({ {'items': after}!r}))\n"
        f"keep('orders', lambda: shop.holds({ {'orders': orders}!r}))\n",
        [
            [f"sqlite3 /app/shop.db \"UPDATE items SET price = {new} WHERE name = '{name}'\""],
            [
                "cd /app",
                "sqlite3 shop.db 'SELECT * FROM items'",
                f"sqlite3 shop.db 'UPDATE items SET price = {new} WHERE id = {id}'",
            ],
        ],
        [
            ["sqlite3 /app/shop.db 'SELECT * FROM items'"],
            [f"sqlite3 /app/shop.db 'UPDATE items SET price = {new}'"],
            [f"sqlite3 /app/shop.db 'UPDATE items SET price = {new} WHERE id = {id}; DELETE FROM orders WHERE id = 1'"],
        ],
    )
