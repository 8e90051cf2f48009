"""Pages of HTML that are complete by themselves: they ask for nothing else, and run only the script that they bring."""

from __future__ import annotations

import base64
import hashlib
import html
from pathlib import Path

HERE = Path(__file__).parent


def brought(name: str) -> str:
    """Returns the text of a file of this package."""
    return (HERE / name).read_text(encoding="utf-8")


def page(title: str, body: str, style: str, script: str = "") -> str:
    """Returns a page.

    Args:
        title: its title, as text.
        body: its content, as HTML.
        style: its style sheet; no element may have a style of its own.
        script: its script; empty for none.
    """
    rules = [
        "default-src 'none'",
        "img-src data:",
        f"style-src {_hash(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    rules += [f"script-src {_hash(script)}"] if script else []
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{"; ".join(rules)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
{f"<script>{script}</script>" if script else ""}
</body>
</html>
"""


def _hash(text: str) -> str:
    """Returns the name of an inline script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
