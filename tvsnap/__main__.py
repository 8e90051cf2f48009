"""`python -m tvsnap`: the command line of this interpreter's tvsnap."""

from tvsnap_cli.entry import main

if __name__ == "__main__":
    main()
