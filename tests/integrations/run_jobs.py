"""Runs jobs of Harbor one after another in one process, those of one argument side by side: by Harbor's own Python.

python run_jobs.py without.json,without-scripted.json first.json,first-scripted.json
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from harbor.job import Job
from harbor.models.job.config import JobConfig


async def _run(paths: list[str]) -> None:
    configs = [JobConfig.model_validate_json(Path(path).read_text()) for path in paths]
    await asyncio.gather(*[(await Job.create(config)).run() for config in configs])


if __name__ == "__main__":
    for together in sys.argv[1:]:
        asyncio.run(_run(together.split(",")))
