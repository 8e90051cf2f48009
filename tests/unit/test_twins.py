"""What is generated is what the script makes of its source."""

from __future__ import annotations

from scripts import generate_twins


def test_the_client_that_blocks_is_generated_from_the_one_that_is_awaited() -> None:
    made = generate_twins.blocking(generate_twins.SOURCE.read_text())
    assert generate_twins.TARGET.read_text() == made, "run `make twins`"
