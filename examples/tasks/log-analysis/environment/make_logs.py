"""Writes the logs of the task, the same each time: make_logs.py DIRECTORY"""

import random
import sys
from datetime import datetime, timedelta
from pathlib import Path

REQUESTS = 11_873
FILES = ("shop.log.2", "shop.log.1", "shop.log")  # the oldest first
AGAIN = 23  # lines at the end of a file that the next one has too
PATHS = ("/", "/cart", "/items/500", "/items/17", "/search", "/checkout")


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    chance = random.Random(20260314).random  # the one method whose sequence Python promises to keep
    time = datetime(2026, 3, 14)
    lines = []
    for number in range(REQUESTS):
        time += timedelta(seconds=int(chance() * 9))
        server = f"web-{1 + int(chance() * 3)}"
        stamp = f"{time:%Y-%m-%dT%H:%M:%SZ} {server}"
        path = PATHS[int(chance() * len(PATHS))]
        failed = chance() < (0.002 if server == "web-1" else 0.02)
        status = 500 + int(chance() * 4) if failed else (200, 200, 200, 304, 404)[int(chance() * 5)]
        size = int(chance() * 5000)
        duration = 3 + int(chance() ** 4 * 900)
        client = f"10.0.{int(chance() ** 3 * 8)}.{1 + int(chance() * 250)}"
        id = f"{number * 7919 % 0xFFFFFF:06x}"
        lines.append(f"{stamp} {id} GET {path} {status} {size} {duration}ms {client}")
        if chance() < 0.01:
            lines.append(f"{stamp} worker {int(chance() * 900)} restarted: 500 requests served")
    size = len(lines) // len(FILES)
    for number, name in enumerate(FILES):
        last = number == len(FILES) - 1
        part = lines[max(0, number * size - AGAIN) : None if last else (number + 1) * size]
        # The newest line is being written: it has no end yet.
        (folder / name).write_text("\n".join(part) + ("" if last else "\n"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
