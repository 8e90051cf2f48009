"""Images from what others describe: tasks of Harbor and terminal-bench, and services as in Compose."""

TASK_TOML = "task.toml"
"""The file that makes a folder a task of Harbor."""
