"""The keys of the screen: their actions, and their descriptions for people."""

from __future__ import annotations

from textual.binding import BindingType

PANES = ("call", "output", "processes", "shell", "files")
"""The panes beside the tree, from the first."""
BINDINGS: list[BindingType] = [
    ("q", "quit", "Leave"),
    ("question_mark", "keys", "Keys"),
    ("slash", "filter", "Filter"),
    ("escape", "return", "Back"),
    ("left", "fold", "Hide"),
    ("right", "unfold", "Show"),
    ("z", "fold_all(True)", "Hide all"),
    ("Z", "fold_all(False)", "Show all"),
    ("j", "along(1)", "Next"),
    ("k", "along(-1)", "Before"),
    ("b", "diverged(1)", "Sibling"),
    ("B", "diverged(-1)", "Sibling before"),
    *((key, f"find('{what}', 1)", what) for key, what in (("f", "failing"), ("h", "hit"), ("w", "unkept"))),
    *((key, f"find('{what}', -1)", what) for key, what in (("F", "failing"), ("H", "hit"), ("W", "unkept"))),
    *((str(number), f"pane('{name}')", name) for number, name in enumerate(PANES, 1)),
    ("enter", "read", "Read a file"),
    ("l", "look", "Look"),
    ("L", "follow", "Look at each"),
    ("t", "trajectory", "Step through"),
    ("T", "rollouts", "Rollouts"),
    ("d", "mark", "Diff"),
    ("D", "diff_above", "Diff with the state above"),
    ("s", "shell", "Shell"),
    ("x", "run_command", "Run"),
    ("r", "reexecute", "Again"),
    ("e", "export", "Export"),
    ("g", "grade", "Grade"),
]
KEYS = (
    ("up down", "the row above or below; with page and home, end too"),
    ("left right", "hide or show what is below; z: hide all, Z: show all"),
    ("j k", "along a rollout: the next state, the state before"),
    ("b B", "where a rollout diverged: the next or the last sibling"),
    ("f F", "the next or the last call that failed"),
    ("h H", "the next or the last call that answered others"),
    ("w W", "the next or the last state without a snapshot"),
    ("/", "filter: text, task:NAME, tool:NAME, exit:1, exit:!0, reward:>0.5, is:failing, is:hit, is:unkept"),
    ("1 to 5", "the panes; pressed twice, or tab: the keys go there"),
    ("l L", "look at processes, shell and files in a fork; at those of each state that is chosen"),
    ("t", "step through a rollout that came here; T: choose any rollout; escape: back to the tree"),
    ("d", "mark a state; at a second one, how they differ; D: what the last call changed"),
    ("s", "a shell in a fork, until Ctrl-]"),
    ("x", "run one command in a fork"),
    ("r", "make the call again and compare"),
    ("e", "export the files for docker load"),
    ("g", "grade the state by a command"),
    ("enter", "in the pane of files: read one, or list a folder"),
    ("q", "leave"),
)
