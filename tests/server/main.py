"""The command line, from this checkout, where processors are idle whatever else the machine does."""

from cli.entry import main
from tvsnap.host.load import Processors

Processors.short = False  # type: ignore[assignment, method-assign]

main()
