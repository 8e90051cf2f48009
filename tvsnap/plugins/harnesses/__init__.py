"""Plug-ins for programs that run agents: one module for each, with the class that it requires."""
