"""What is known of one actor, over all its restarts: its state, its mailbox, the asks that wait for it, who watches it.

It decides what others see of an actor, and the words for one that is gone. It must not know how an actor runs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import trio
from trio.lowlevel import Task

from actors.runtime import waits
from actors.runtime.errors import ActorGone, AskTimeout, MessageDropped
from actors.runtime.mailbox import Lost, Mailbox
from actors.runtime.overflow import make_mailbox
from actors.runtime.parts import Parts
from actors.runtime.plan import Spec
from actors.runtime.ref import Down, DownKind, Ref
from actors.runtime.reply import Reply, reply_of

if TYPE_CHECKING:
    from actors.runtime.actor import Actor
    from actors.runtime.owner import Owner

M = TypeVar("M")


class Record(Generic[M]):
    """What is known of one actor, over all its restarts. Its life is in `Actor`."""

    __slots__ = (
        "_crash", "_done", "_kind", "_may_start", "_parked", "_parts", "_scope", "_starter", "_stop_kind", "_watchers",
        "asks", "current", "down", "error", "interrupted", "mailbox", "name", "nursery", "paused_s", "published",
        "ready", "receives_elsewhere", "ref", "restart_times", "restarting", "restarts", "since", "spec",
        "started_with", "stop_reason", "supervisor", "system", "wait", "waits_for",
    )  # fmt: skip
    names_its_own: ClassVar[bool] = False

    def __init__(self, supervisor: "Owner", spec: Spec, name: str) -> None:
        self.name = name
        self.supervisor = supervisor
        self.system = supervisor.system
        self.spec: Spec | None = spec
        self.mailbox: Mailbox[M] = make_mailbox(spec.mailbox_size, spec.overflow, self)
        self.asks: dict[Reply[Any], None] = {}
        self.ref: Ref[M] = Ref(cast("Actor[Any]", self))
        self.current: M | None = None
        self.since = 0.0  # when the body took what it has in hand
        self.ready = False  # this incarnation has started
        self.published = False  # some incarnation has
        self.restarting = False
        self.interrupted: str | None = None  # why its supervisor ended this incarnation, to start another
        self.restarts: int = 0
        self.restart_times: tuple[float, ...] = ()
        self.paused_s = 0.0
        self.started_with: object = None
        self.stop_reason: str | None = None
        self.error: BaseException | None = None
        self.down: Down | None = None
        self.waits_for: waits.Waiter | None = None
        self.wait: waits.Wait | None = None
        self.receives_elsewhere = False
        self.nursery: trio.Nursery | None = None
        self._crash: BaseException | None = None
        self._kind: DownKind | None = None
        self._stop_kind = DownKind.STOPPED
        self._scope: trio.CancelScope | None = None
        self._parts: Parts | None = None
        self._watchers: dict[Actor[Any], Callable[[Down], Any] | None] | None = None
        self._starter: Task | None = None
        self._parked: Task | None = None
        self._may_start = False
        self._done: trio.Event | None = None

    # What others see.

    @property
    def path(self) -> str:
        """Its name under its supervisor's."""
        return self.supervisor.path_of(self.name)

    @property
    def handling_kind(self) -> str | None:
        """The type name of the message it has in hand."""
        return None if self.current is None else type(self.current).__name__

    @property
    def state(self) -> str:
        """One word for `tree()`."""
        if self.down is not None:
            return "ended"
        if self.stop_reason is not None:
            return "stopping"
        if self.restarting:
            return "restarting"
        if not self.mailbox.senders:
            return "draining"
        return "running" if self.ready else "starting"

    @property
    def draining(self) -> bool:
        """True once it was asked to drain, or to stop."""
        return not self.mailbox.senders

    @property
    def ended(self) -> bool:
        """True once everybody can see that it has ended."""
        return self.down is not None

    @property
    def awaits_start(self) -> bool:
        """True while it waits to be started again."""
        return self.restarting and self.stop_reason is None

    def grace_s(self) -> float:
        """Return how long it may take to end when it is stopped."""
        return self.supervisor.grace_of(self.spec)

    @property
    def parts(self) -> Parts:
        """What this incarnation has beside its body."""
        if self._parts is None:
            self._parts = Parts(cast("Actor[Any]", self))
        return self._parts

    def gone(self) -> ActorGone:
        """Return a new error for one who is turned away, or was not answered."""
        if self.down is not None:
            reason = self.down.reason
        elif self.stop_reason is not None:
            reason = self.stop_reason
        else:
            reason = "draining" if self.draining else "crashed" if self.error is not None else "restarting"
        return ActorGone(self.name, reason, self.error)

    def refused(self, message: object) -> None:
        """A message that was told was not accepted."""
        if self.down is not None:
            self.system.count_rejected_by_ended()
        reason = "its mailbox is full" if self.down is None and not self.draining else self.gone().reason
        self.system.dead_letters.add(self.name, message, Lost.REJECTED, reason)

    # What its mailbox and its asks report.

    def lost(self, message: object, how: Lost) -> None:
        """A message was accepted and will not be handled."""
        if how is Lost.DROPPED:
            reply_of(message).end(MessageDropped(self.name))
            reason = "dropped for a newer message"
        else:
            reason = "its asker has gone"
        self.system.dead_letters.add(self.name, message, how, reason)

    def ask_given_up(self) -> None:
        """An asker has gone; its message may still be queued."""
        self.mailbox.abandoned += 1

    def ask_late(self) -> None:
        """An answer came for an asker that has gone."""
        self.system.count_late_reply()

    def ask_timeout(self, within: float) -> AskTimeout:
        """The time of an ask has run out."""
        return AskTimeout(self.name, within, len(self.mailbox), self.handling_kind)

    def withdraw(self, task: Task, error: Exception) -> bool:
        """Wake an asker that waits for room."""
        return self.mailbox.withdraw(task, error)

    def add_watcher(self, watcher: "Actor[Any]", to: Callable[[Down], Any] | None) -> None:
        """Another actor wants to know of the end."""
        if self._watchers is None:
            self._watchers = {}
        self._watchers[watcher] = to

    def remove_watcher(self, watcher: "Actor[Any]") -> None:
        """It does not, any more."""
        if self._watchers is not None:
            self._watchers.pop(watcher, None)
            self._watchers = self._watchers or None
