"""Tasks on SQLite's databases, at a shell."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tvsnap.training.tasks.task import WORDS, Draft, write


def shop(chance: random.Random) -> tuple[str, list[tuple[int, str, int]], list[tuple[int, int, int]]]:
    """Returns the script of a database, its items (id, name, price) and its orders (id, item, number)."""
    items = [(number, name, chance.randint(1, 90)) for number, name in enumerate(chance.sample(WORDS, 5), 1)]
    orders = [(number, chance.randint(1, 5), chance.randint(1, 9)) for number in range(1, chance.randint(8, 16))]
    script = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, price INTEGER);\n"
    script += "CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER, number INTEGER);\n"
    script += "".join(f"INSERT INTO items VALUES {item};\n" for item in items)
    script += "".join(f"INSERT INTO orders VALUES {order};\n" for order in orders)
    return f"{write('/app/shop.sql', script)}\ncd /app && sqlite3 shop.db < shop.sql && rm shop.sql", items, orders


def table(name: str, rows: Sequence[Sequence[object]], kind: str = "keep") -> str:
    """Returns a check that a table holds rows."""
    wanted = [list(row) for row in rows]
    return f"{kind}({name!r}, lambda: rows('SELECT * FROM {name} ORDER BY id') == {wanted!r})\n"


def question(chance: random.Random) -> Draft:
    setup, items, orders = shop(chance)
    id, name, price = chance.choice(items)
    number = sum(count for _, item, count in orders if item == id)
    total = number * price
    query = f"SELECT coalesce(sum(number * price), 0) FROM orders JOIN items ON items.id = item WHERE name = '{name}'"
    return Draft(
        "The SQLite database /app/shop.db has the tables items (id, name, price) and orders (id, item, number). What "
        f"do all orders of {name} (id {id}, price {price}) cost together? Write the number to /app/answer.txt.",
        setup,
        f"goal('answer', lambda: text('/app/answer.txt').strip() == '{total}')\n"
        + table("items", items)
        + table("orders", orders),
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
        table("items", after, "goal") + table("orders", orders),
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
