"""Guesses a rollout's next call while its model thinks, and executes it in a fork: the answer is then there.

It rests on what `tvsnap` exports. Nothing is guessed unless somebody makes rollouts by a `Guesser`.
"""

from tvsnap.guessing.guesser import GuessedRollout, Guesser, GuessStats
from tvsnap.guessing.next_calls import Guess, NextCalls

__all__ = ["Guess", "GuessStats", "GuessedRollout", "Guesser", "NextCalls"]
