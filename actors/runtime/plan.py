"""What actors and supervisors are made from, and made again from. Data only; it must not know what becomes of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from actors.runtime.group import Strategy
from actors.runtime.overflow import Overflow
from actors.runtime.reports import Crash
from actors.runtime.restart import Restart, RestartPolicy


@dataclass(slots=True)
class Spec:
    """What an actor is made from, and made again from where its whole supervisor is restarted."""

    body: Callable[..., Awaitable[None]]
    args: tuple[Any, ...]
    mailbox_size: int = 64
    overflow: Overflow = "wait"
    own_nursery: bool = False
    restart: Restart | None = None
    stop_grace_s: float | None = None
    on_end: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a supervisor is made from, and made again from where the whole of its parent is restarted.

    Attributes:
        policy: When its children are restarted.
        strategy: Whom a crash concerns.
        max_children: How many it may have at a time; None for any number, stopped in order.
        stop_grace_s: How long a child may take to end, in seconds, before the next is stopped.
        on_crash: Told of each crash of a child.
    """

    policy: RestartPolicy
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_children: int | None = None
    stop_grace_s: float = 5.0
    on_crash: Callable[[Crash], None] | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a child is made again: an actor's spec, or a supervisor's plan with the recipes of its children."""

    name: str
    spec: Spec | None = None
    plan: Plan | None = None
    children: "tuple[Recipe, ...]" = ()
