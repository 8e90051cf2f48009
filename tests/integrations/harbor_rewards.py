"""Compares how tvsnap and Harbor read the files that verifiers leave: by Harbor's own Python.

python harbor_rewards.py FOLDER, where FOLDER is an empty folder
"""

from __future__ import annotations

import sys
from pathlib import Path

from harbor.models.trial.paths import TrialPaths
from harbor.models.verifier.result import VerifierResult
from harbor.verifier.verifier import RewardFileEmptyError, Verifier, VerifierOutputParseError

from tvsnap.plugins.harnesses.harbor.rewards import read_reward

TEXTS = (None, "", "1", " 0.5\n", "nan", "1e999", "yes", "1_0", "\udcff")
DATA = (
    *(None, "", "1", "{}", "[1]", '{"reward": 0.25}', '{"reward": "1"}', '{"reward": true}', '{"reward": null}'),
    *('{"reward": 1, "tests": 0.5}', '{"reward": 1, "tests": "3/4"}', '{"tests": 0.5}', '{"reward": NaN}'),
    *('{"reward": 1e309}', '{"reward": 1, "other": Infinity}', '{"reward": 1', '"1"', "[" * 100_000),
)


def harbors(paths: TrialPaths) -> float | None:
    """Returns the single reward that Harbor itself finds; None where it finds none."""
    verifier = Verifier.__new__(Verifier)
    verifier.trial_paths = paths
    try:
        if paths.reward_json_path.exists():
            rewards = verifier._parse_reward_json()
        elif paths.reward_text_path.exists():
            rewards = verifier._parse_reward_text()
        else:
            return None
        found = (VerifierResult(rewards=rewards).rewards or {}).get("reward")
    except (VerifierOutputParseError, RewardFileEmptyError, ValueError, RecursionError):
        return None
    return None if found is None else float(found)


def main() -> None:
    compared = []
    for number, (text, data) in enumerate((text, data) for text in TEXTS for data in DATA):
        paths = TrialPaths(Path(sys.argv[1]) / str(number))
        paths.verifier_dir.mkdir(parents=True)
        for path, content in ((paths.reward_text_path, text), (paths.reward_json_path, data)):
            if content is not None:
                path.write_bytes(content.encode(errors="surrogateescape"))
        ours = read_reward(paths.reward_text_path, paths.reward_json_path)
        assert ours == harbors(paths), (text, data, ours)
        compared.append(ours)
    print(len(compared), sorted({reward for reward in compared if reward is not None}))


if __name__ == "__main__":
    main()
