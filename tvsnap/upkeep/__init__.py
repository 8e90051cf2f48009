"""What is done beside rollouts: checks of recorded calls, collection of what nothing needs, a look at this machine."""
