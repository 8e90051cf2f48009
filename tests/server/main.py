"""The command line, from this checkout."""

from cli.entry import main

main()
