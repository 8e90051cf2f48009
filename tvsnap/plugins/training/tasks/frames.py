"""Tasks on data frames, with the tool `python` in the image `python`, which has pandas."""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft, stays, write


def _sales(chance: random.Random) -> list[tuple[str, str, int]]:
    places, goods = chance.sample(WORDS, 3), chance.sample(WORDS, 3)
    return [(chance.choice(places), chance.choice(goods), chance.randint(1, 99)) for _ in range(chance.randint(12, 30))]


def frame(chance: random.Random) -> Draft:
    rows = _sales(chance)
    content = "place,good,number\n" + "\n".join(",".join(map(str, row)) for row in rows)
    good = rows[0][1]
    totals: dict[str, int] = {}
    for place, each, number in rows:
        if each == good:
            totals[place] = totals.get(place, 0) + number
    checks = f"goal('totals', lambda: records('/app/totals.csv', 'place', 'number') == {sorted(totals.items())!r})\n"
    chosen = f"sales[sales.good == '{good}'].groupby('place').number.sum()"
    return Draft(
        f"The file /app/sales.csv has the columns place, good and number. Write the total number of {good} at each "
        f"place that sold any (of {sum(number for _, _, number in rows)} in all) to /app/totals.csv, sorted by place, "
        "with the columns place and number only. Leave sales.csv as it is.",
        write("/app/sales.csv", content),
        checks + stays({"/app/sales.csv": content}),
        [
            [f"import pandas\nsales = pandas.read_csv('/app/sales.csv')\n{chosen}.to_csv('/app/totals.csv')"],
            [
                "import pandas",
                "sales = pandas.read_csv('/app/sales.csv')",
                "sales.head()",
                f"some = sales[sales.good == '{good}']",
                "totals = some.groupby('place', as_index=False).number.sum()",
                "totals",
                "totals.to_csv('/app/totals.csv', index=False)",
            ],
            [
                "import csv, collections\ntotals = collections.Counter()\n"
                "for row in csv.DictReader(open('/app/sales.csv')):\n"
                f"    if row['good'] == '{good}':\n        totals[row['place']] += int(row['number'])",
                "with open('/app/totals.csv', 'w') as file:\n    file.write('place,number\\n')\n"
                "    for place in sorted(totals):\n        file.write(f'{place},{totals[place]}\\n')",
            ],
        ],
        [
            ["import pandas\nprint(pandas.read_csv('/app/sales.csv'))"],
            [
                "import pandas\nsales = pandas.read_csv('/app/sales.csv')",
                "(sales.groupby('place').number.sum() + 1).to_csv('/app/totals.csv')",
            ],
        ],
        "python",
        "python",
    )


def clean(chance: random.Random) -> Draft:
    names = chance.sample(WORDS, 8)
    rows = [(name, str(chance.randint(1, 99)) if chance.random() < 0.6 else "") for name in names]
    rows[0], rows[1] = (names[0], "7"), (names[1], "")
    rows += [rows[0], chance.choice(rows)]
    chance.shuffle(rows)
    content = "name,number\n" + "\n".join(",".join(row) for row in rows)
    seen = dict.fromkeys(row for row in rows if row[1])
    wanted = [(name, int(number)) for name, number in seen]
    checks = f"goal('clean', lambda: records('/app/clean.csv', 'name', 'number') == {wanted!r})\n"
    return Draft(
        f"The file /app/data.csv ({', '.join(names[:3])} and others) has the columns name and number. Write it without "
        "the rows that have no number and without repeated rows, in the order of the first ones, to /app/clean.csv, "
        "with the same columns. Leave data.csv as it is.",
        write("/app/data.csv", content),
        checks + stays({"/app/data.csv": content}),
        [
            [
                "import pandas\npandas.read_csv('/app/data.csv').dropna().drop_duplicates()"
                ".to_csv('/app/clean.csv', index=False)"
            ],
            [
                "import pandas as pd",
                "data = pd.read_csv('/app/data.csv')",
                "data.isna().sum(), data.duplicated().sum()",
                "data = data[data.number.notna()]",
                "data = data.drop_duplicates()",
                "data.astype({'number': int}).to_csv('/app/clean.csv', index=False)",
            ],
        ],
        [
            ["import pandas\npandas.read_csv('/app/data.csv').to_csv('/app/clean.csv', index=False)"],
            ["import pandas\npandas.read_csv('/app/data.csv').dropna().to_csv('/app/clean.csv', index=False)"],
            [
                "import pandas\npandas.read_csv('/app/data.csv').dropna().drop_duplicates()"
                ".to_csv('/app/data.csv', index=False)"
            ],
        ],
        "python",
        "python",
    )
