"""Which policies can be chosen by name? A new one is a file and a line here."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from eviction.errors import UnknownPolicyError
from eviction.fifo import FifoPolicy
from eviction.lru import LruPolicy
from eviction.optimal import OptimalPolicy
from eviction.policy import EvictionPolicy

__all__ = ["make_policy", "policy_names"]

K = TypeVar("K", bound=Hashable)

_FACTORIES: dict[str, Callable[[], EvictionPolicy[Any]]] = {
    FifoPolicy.name: FifoPolicy,
    LruPolicy.name: LruPolicy,
}


def policy_names() -> tuple[str, ...]:
    """The names that ``make_policy`` takes, sorted: every policy that works without knowing the future."""
    return tuple(sorted(_FACTORIES))


def make_policy(name: str) -> EvictionPolicy[K]:
    """A fresh, empty policy for one tier.

    Raises:
        UnknownPolicyError: no such name, or ``optimal``, which cannot be made from a name alone.
    """
    factory = _FACTORIES.get(name)
    if factory is not None:
        return factory()
    reason = None
    if name == OptimalPolicy.name:
        reason = f"{name!r} needs an oracle of the trace: only a replay can make it, as OptimalPolicy(oracle)"
    raise UnknownPolicyError(name, known=policy_names(), reason=reason)
