"""What keeps a call from being searched in another process."""

from __future__ import annotations


class CannotTravelError(Exception):
    """Something of a call exists in this process only; the text names it."""
