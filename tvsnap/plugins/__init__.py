"""Plug-ins: each package here can be left out, and nothing outside imports it by itself.

The core finds them by their entry points (`tvsnap.host.plugins`), as it finds those of other packages. Users import
them by shorter names, which re-export what is here: `tvsnap.integrations`, `tvsnap.training`, `tvsnap.ray` and others.
"""
