"""The command line, from this checkout, for which processors are idle, so that no test depends on what else runs."""

from cli.entry import main
from tvsnap.host.load import Processors

Processors.short = False  # type: ignore[assignment,method-assign]
main()
