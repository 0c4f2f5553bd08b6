"""Make untrusted text safe to print on a terminal."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Escape what would control a terminal, as `\\x1b`: control characters, and those that reorder.

    Line ends are escaped, too, so the result is one line; `keep` names characters that may stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)
