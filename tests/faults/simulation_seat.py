"""What one client sees of one session while it is attached: a gapless slice of the log, and texts without a hole.

A reader is called in the middle of the session's step and must not raise, so it reports what is wrong to the recorder.
"""

from collections.abc import Callable
from typing import Any

from actors.agent.serving import Attached
from protocol import events as ev
from protocol.errors import Code
from tests.faults.simulation_world import World

React = Callable[["Seat", "ev.Event | None"], None]


class Seat:
    """One attachment.

    Attributes:
        log_id: The log it reads; "" until attached.
        seq: The last record it was offered.
        ended: It takes nothing more.
        run: The run that was seen last.
    """

    def __init__(self, world: World, client: str, session: str, room: int, react: React) -> None:
        """Args:
        room: After how many events it stops reading; below 0 never.
        react: Told of each record, and of the end with None.
        """
        self.session = session
        self.log_id = ""
        self.seq = 0
        self.ended = False
        self.run = ""
        self._world = world
        self._client = client
        self._room = room
        self._react = react
        self._replied = False
        self._texts: dict[str, str | None] = {}

    def replied(self) -> None:
        """The session has replied to the attaching."""
        if self._replied:
            self._world.recorder.problem(f"{self._client} was attached to {self.session} twice by one call")
        self._replied = True
        self._world.waiting -= 1

    def begin(self, attached: Attached) -> None:
        """The session shows what follows."""
        kept = self._world.store.logs[self.session]
        self._world.recorder.check(
            attached.log_id == kept.log_id and attached.seq <= len(kept.events), f"{attached} is not what is kept"
        )
        self.log_id, self.seq = attached.log_id, attached.seq
        snapshot = attached.snapshot
        if snapshot is not None:
            self._world.snapshots.append(snapshot)
            partial = snapshot.run.partial if snapshot.run is not None else None
            if partial is not None:
                self._texts[partial.message] = partial.text

    # ---- the reader

    def offer(self, event: ev.Event) -> bool:
        recorder = self._world.recorder
        if self.ended:
            return False
        if self._room == 0:
            recorder.count("readers that stopped reading")
            return False
        self._room -= 1
        if not self._replied:
            recorder.problem(f"{self._client} was offered {event} of {self.session} before it was attached")
        recorder.event(self._client, self.session, event)
        if event.durable:
            self._take(event)
        else:
            assert isinstance(event, ev.Ephemeral)
            self._glimpse(event)
        return True

    def closed(self, code: Code, seq: int) -> None:
        recorder = self._world.recorder
        recorder.note(self._client, self.session, "closed", code, seq)
        if not self.ended:
            recorder.count(f"readers closed {code}")
            recorder.check(
                seq == self.seq or code == Code.LINK_TOO_SLOW,
                f"{self._client} was told that {self.session} ended at {seq}, and has seen {self.seq}",
            )
            self.ended = True
            self._react(self, None)

    def _take(self, event: ev.Event) -> None:
        world = self._world
        kept = world.store.logs[self.session].events
        # Not with `check`: to make the text costs more than to look.
        if event.seq != self.seq + 1:
            world.recorder.problem(f"{self._client} saw record {event.seq} of {self.session} after {self.seq}")
        elif event.seq > len(kept) or kept[event.seq - 1] is not event:
            world.recorder.problem(f"{self._client} saw record {event.seq} of {self.session}, not kept: {event}")
        self.seq = event.seq
        self.run = event.run
        if isinstance(event, ev.ModelCompleted):
            seen = self._texts.pop(event.message_id, None)
            world.recorder.check(
                seen is None or seen == event.message.content,
                f"{self._client} was streamed {seen!r}, and the message is {event.message.content!r}",
            )
        elif isinstance(event, ev.RUN_ENDS):
            self._texts.clear()
        elif isinstance(event, ev.AskOpened):
            world.check_ask(self.session, event)
        self._react(self, event)

    def _glimpse(self, event: ev.Ephemeral) -> None:
        recorder = self._world.recorder
        if event.base != self.seq:
            recorder.problem(f"{self._client} saw {event} of {self.session} beside record {self.seq}")
        if isinstance(event, ev.TextStreamed):
            seen: Any = self._texts.get(event.message, "" if event.offset == 0 else None)
            if seen is not None:
                if event.offset != len(seen):
                    recorder.problem(f"{self._client} saw {event} of {self.session} after {seen!r}")
                self._texts[event.message] = seen + event.text
