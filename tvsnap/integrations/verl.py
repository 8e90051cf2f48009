"""verl's tool and agent loop on tvsnap; importing it registers the loop."""

from tvsnap.plugins.harnesses.verl import BashTool, TvsnapToolAgentLoop

__all__ = ["BashTool", "TvsnapToolAgentLoop"]
