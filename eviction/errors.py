"""What this package raises on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial

__all__ = ["UnknownPolicyError"]


class UnknownPolicyError(ValueError):
    """No policy can be made from this name.

    Args:
        name: what was asked for.
        known: the names that work.
        reason: why this name in particular does not, if there is more to say than that it is unknown.
    """

    def __init__(self, name: str, *, known: Sequence[str], reason: str | None = None) -> None:
        close = get_close_matches(name.casefold(), known, n=1)
        self._reason = reason
        self.name = name
        self.known = tuple(known)
        self.nearest = close[0] if close else None  #: what was meant, perhaps
        hint = f", did you mean {self.nearest!r}?" if self.nearest else ""
        problem = reason or f"unknown eviction policy {name!r}{hint}"
        super().__init__(f"{problem} (known: {', '.join(known)})")

    def __reduce__(self) -> tuple[Callable[[str], UnknownPolicyError], tuple[str]]:
        """How to make this error again: exceptions pass their message on, which is not what made them."""
        return partial(type(self), known=self.known, reason=self._reason), (self.name,)
