"""What follows when a child of a supervisor ends: it is started again after a backoff, it stays down, or all give up.

It decides about each end once, in one synchronous step, and tells that decision once. It must not know what actors do.
It has no task that could be busy: backoffs and graces are entries of the system's wheel, so a child that ends while
another end is being handled is handled too.
"""

from typing import TYPE_CHECKING, Any

import trio
from trio.lowlevel import checkpoint_if_cancelled, current_task

from actors.runtime import log, waits
from actors.runtime.actor import Actor
from actors.runtime.errors import note
from actors.runtime.group import Group, Start, Strategy
from actors.runtime.plan import Plan
from actors.runtime.reports import Crash, Reports
from actors.runtime.restart import Budget, Restart
from actors.runtime.wheel import Alarm

if TYPE_CHECKING:
    from actors.runtime.owner import Child, Owner



class Judge:
    """Decides for one supervisor."""

    __slots__ = (
        "_backoff", "_failed", "_graces", "_group", "_policy", "_reports", "_settled", "_supervisor", "_system",
        "_times",
    )  # fmt: skip

    def __init__(self, supervisor: "Owner", plan: Plan) -> None:
        self._supervisor = supervisor
        self._system = supervisor.system
        self._policy = plan.policy
        self._reports = Reports(supervisor.system.wheel, supervisor.name, plan.on_crash)
        self._group = Group(plan.strategy) if plan.strategy is not Strategy.ONE_FOR_ONE else None
        self._settled = trio.lowlevel.ParkingLot()  # who waits until a group has been restarted
        self._backoff: Alarm | None = None
        self._graces: dict[str, _Grace] = {}  # of the latest stop of each child of a group
        self._times: tuple[float, ...] = ()  # of all restarts, where they share one budget
        self._failed: tuple[BaseException, str] | None = None  # what to give up with, and why, once the child has ended

    @property
    def restarting(self) -> bool:
        """True while a group is being restarted."""
        return self._group is not None and self._group.restarting

    async def wait_settled(self) -> None:
        """Wait until no group is being restarted, or the supervisor closes. A checkpoint for cancellation only.

        Raises:
            RuntimeError: The caller is an actor that is being restarted with that group: it would wait for itself.
        """
        await checkpoint_if_cancelled()
        body = waits.bodies.get(current_task()) if self.restarting else None
        if isinstance(body, Actor) and not body.ready and body.supervisor.is_under(self._supervisor):
            raise RuntimeError(f"actor {body.path!r} spawns a sibling before it is ready, while its group is restarted")
        while self.restarting and not self._supervisor.closing:
            await self._settled.park()

    def begin(self) -> None:
        """The supervisor itself was restarted: what its children used up before does not count."""
        self._times = ()

    def closed(self) -> None:
        """The supervisor closes: nothing is started again, and who waits for that need not."""
        if self._backoff is not None:
            self._backoff.cancel()
        self._reports.flush()
        self._settled.unpark_all()

    # What children report.

    def joined(self, name: str) -> None:
        """A child is being started for the first time."""
        if self._group is not None:
            self._group.joined(name)

    def ready(self, child: "Child") -> None:
        """A child has started."""
        if self._group is not None:
            self._group.ready(child.name)
            self._step()

    def down(self, child: "Child") -> None:
        """A child that was interrupted waits to be started again."""
        if self._group is not None:
            self._group.down(child.name)
            self._step()

    def ended(self, child: "Child") -> None:
        """A child has ended for good."""
        failed, self._failed = self._failed, None
        if self._group is not None:
            self._graces.pop(child.name, None)
            self._group.left(child.name)
        if failed is not None:
            self._supervisor.give_up(*failed)
        elif self._group is not None:
            self._step()

    def returned(self, actor: Actor[Any]) -> bool:
        """Decide whether a body that has returned is run again."""
        own = actor.spec.restart if actor.spec is not None else None
        if not self._policy.wants(own, crashed=False):
            return False
        if actor.draining or not actor.published or self._supervisor.winding_down:
            return False
        try:
            delay = self._admit(actor)
        except Exception:
            log.exception("actor %r returned and is given up: its backoff raised", actor.path)
            return False
        if delay is None:
            error = RuntimeError(f"actor {actor.path!r} returned, and is to run for ever")
            crash = Crash(actor.name, actor.path, error, None, actor.restarts, None, gave_up=True)
            self._reports.returned_too_often(crash, self._budget())
            self._used_up(error)
            return False
        self._reports.returned(actor.path, actor.restarts + 1, delay)
        self._restart_in(actor, delay)
        return True

    def crashed(self, child: "Child", error: BaseException) -> bool:
        """Decide what follows a crash, and tell it once: whether the child waits for another start."""
        own, can = None, not self._supervisor.winding_down
        if isinstance(child, Actor):
            own = child.spec.restart if child.spec is not None else None
            can = can and child.published and child.stop_reason is None
        wanted = can and self._policy.wants(own, crashed=True)
        delay: float | None = None
        if wanted:
            try:
                delay = self._admit(child)
            except Exception as raised:
                note(error, f"its backoff raised {raised!r}")
        gave_up = wanted and delay is None
        self.report(child, error, delay, gave_up=gave_up)
        if delay is not None and not self._supervisor.closing:  # the hook may have closed it
            self._restart_in(child, delay)
            return True
        if gave_up:
            self._used_up(error)
        elif can and not isinstance(child, Actor):
            # What a supervisor could not handle is not dropped here either.
            self._fails(error, f"{child.name!r} failed and is not restarted")
        return False

    def report(
        self, child: "Child", error: BaseException, restart_in_s: float | None, *, gave_up: bool = False
    ) -> None:
        """Tell a crash to the log and to the hook."""
        self._system.count_crash()
        crash = Crash(
            name=child.name,
            path=child.path,
            error=error,
            message_kind=child.handling_kind if isinstance(child, Actor) else None,
            restarts=child.restarts + (restart_in_s is not None),
            restart_in_s=restart_in_s,
            gave_up=gave_up,
        )
        self._reports.crashed(crash, self._budget())

    def _admit(self, child: "Child") -> float | None:
        now = self._system.wheel.now()
        shared = self._policy.budget is Budget.SUPERVISOR
        times = self._policy.admit(self._times, now) if shared else (
            self._policy.admit(child.restart_times, now - child.paused_s)
        )  # fmt: skip
        if times is None:
            return None
        delay = self._policy.backoff.delay_s(len(times))
        if shared:
            self._times = times
        else:
            child.restart_times = times
        return delay

    def _used_up(self, error: BaseException) -> None:
        """A child has used up the restarts; once it has ended, that may be the end of all."""
        if self._group is not None or self._policy.budget is Budget.SUPERVISOR:
            self._fails(error, f"{self._budget()} were used up")

    def _fails(self, error: BaseException, why: str) -> None:
        self._failed = (error, why)
        self._supervisor.keep_recipes()  # while the child is still there

    # Restarts.

    def _restart_in(self, child: "Child", delay: float) -> None:
        wheel = self._system.wheel
        if self._group is None:
            wheel.add(_Backoff(child), wheel.now() + delay)
            return
        self._group.crashed(child.name)
        if self._backoff is not None:
            self._backoff.cancel()
        self._backoff = Alarm(self._backoff_over)
        wheel.add(self._backoff, wheel.now() + delay)
        self._step()

    def _backoff_over(self) -> None:
        assert self._group is not None
        self._backoff = None
        self._group.backoff_over()
        self._step()

    def _step(self) -> None:
        """Carry out what the restart of a group asks for."""
        group = self._group
        assert group is not None
        while not self._supervisor.closing and (step := group.next_step()) is not None:
            child = self._supervisor.child(step.name)
            if child is None:
                continue
            if isinstance(step, Start):
                child.go()
            else:
                self._stop_for_restart(child)
        if not group.restarting:
            self._settled.unpark_all()

    def _stop_for_restart(self, child: "Child") -> None:
        reason = f"supervisor {self._supervisor.path!r} restarts its children"
        spec = child.spec if isinstance(child, Actor) else None
        if spec is not None and (spec.restart or self._policy.restart) is Restart.TEMPORARY:
            child.stop(reason)
        else:
            child.interrupt_for_restart(reason)
        wheel = self._system.wheel
        grace = self._graces[child.name] = _Grace(self, child)
        wheel.add(grace, wheel.now() + child.grace_s())

    def waits_for_stop(self, grace: "_Grace", child: "Child") -> bool:
        """Return whether a child is being stopped, to be started again, and this is the grace of that stop."""
        group = self._group
        if group is None or self._graces.get(child.name) is not grace:
            return False
        return self._supervisor.child(child.name) is child and group.stopping(child.name)

    def overran(self, child: "Child") -> None:
        """A child that is stopped for a restart has used up its grace: the others are stopped meanwhile."""
        log.warning("actor %r has not ended %g s after it was stopped to be restarted", child.path, child.grace_s())
        assert self._group is not None
        self._group.overran(child.name)
        self._step()

    def _budget(self) -> str:
        limit = self._policy.limit
        return f"{limit} restart{'' if limit == 1 else 's'} in {self._policy.window_s:g} s"


class _Backoff:
    """On the wheel: a child's next start."""

    __slots__ = ("_child",)

    def __init__(self, child: "Child") -> None:
        self._child = child

    @property
    def active(self) -> bool:
        return self._child.awaits_start

    def due(self) -> None:
        self._child.go()


class _Grace:
    """On the wheel: how long a child may take to end before the others of its group are stopped."""

    __slots__ = ("_child", "_judge")

    def __init__(self, judge: "Judge", child: "Child") -> None:
        self._judge = judge
        self._child = child

    @property
    def active(self) -> bool:
        return self._judge.waits_for_stop(self, self._child)

    def due(self) -> None:
        self._judge.overran(self._child)
