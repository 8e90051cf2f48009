"""Where a harness is missing, the message says how to get it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "package", "message"),
    [
        ("harbor", "harbor", r"needs Harbor, of which harbor.* is missing: pip install 'tvsnap\[harbor\]'"),
        (
            "mini_swe_agent",
            "minisweagent",
            r"needs mini-swe-agent, .*: pip install 'tvsnap\[mini-swe-agent\]'",
        ),
        (
            "openhands",
            "openhands",
            r"needs OpenHands' SDK, of which openhands.* is missing: pip install 'tvsnap\[openhands\]'",
        ),
        ("swe_rex", "swerex", r"needs SWE-ReX, of which swerex.* is missing: pip install 'tvsnap\[swe-rex\]'"),
        ("verl", "verl", "needs verl, of which .* is missing: pip install verl"),
        ("skyrl", "skyrl_gym", "needs skyrl-gym, of which .* is missing: pip install skyrl-gym"),
        ("verifiers", "verifiers", "needs verifiers 0.4, of which .* is missing: pip install verifiers"),
        ("tinker", "tinker_cookbook", "needs tinker-cookbook, of which .* is missing: pip install tinker-cookbook"),
        ("openenv", "openenv", "needs openenv-core, of which .* is missing: pip install openenv-core"),
    ],
)
def test_where_a_harness_is_missing_the_message_says_how_to_get_it(module: str, package: str, message: str) -> None:
    # As though it were missing, also where it is not.
    code = f"import sys; sys.modules[{package!r}] = None; import tvsnap.integrations.{module}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert re.search(f"ModuleNotFoundError: tvsnap.integrations.{module} {message}", ran.stderr), ran.stderr
