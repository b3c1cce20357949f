"""Every limit in one place. Sizes and durations carry their unit in the name; none is infinite by default."""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True, gc=False):
    """Bounds of an agent, its sessions and its gateway. All are checked at the door, before anything is recorded."""

    # Sessions
    max_sessions: int = 100_000
    max_turns: int = 36
    max_queued_runs: int = 16
    max_queued_steers: int = 64
    max_prompt_chars: int = 1_000_000
    mailbox_size: int = 64
    max_log_records: int = 2_000
    snapshot_records: int = 500
    snapshot_bytes: int = 1_048_576
    blob_bytes: int = 65_536
    # Runs
    max_resumes: int = 3
    cancel_grace_s: float = 5.0
    close_grace_s: float = 10.0
    cleanup_s: float = 2.0
    stream_high_water: int = 1_024
    # Model output
    max_calls_per_turn: int = 512
    max_arguments_chars: int = 1_000_000
    max_text_chars: int = 4_000_000
    max_depth: int = 64
    # Records
    max_event_bytes: int = 1_048_576
    # Asks
    max_question_chars: int = 4_000
    max_options: int = 20
    max_option_chars: int = 500
    max_answer_bytes: int = 262_144
    # Todo lists
    max_todos: int = 100
    max_todo_chars: int = 4_000
    # Gateway
    max_head_bytes: int = 16_384
    head_deadline_s: float = 5.0
    max_message_bytes: int = 1_048_576
    max_inbox_messages: int = 64
    max_outbox_bytes: int = 8_388_608
    max_outbox_messages: int = 10_000
    max_connections: int = 1_024
    write_deadline_s: float = 5.0
    ping_interval_s: float = 20.0
    ping_timeout_s: float = 20.0
    close_deadline_s: float = 2.0
    drain_deadline_s: float = 4.0
    max_batch: int = 64
    max_attached: int = 256

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"limit {name} is above 0, not {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()


class Retention(Struct, frozen=True, kw_only=True, gc=False):
    """Which records of a session are kept behind a snapshot. The snapshot has the whole history, whatever goes.

    Attributes:
        records: The last ones, so many at least.
        age_s: Also those that are younger than so many seconds; None for none.

    Raises:
        ValueError: One of them is not above 0.
    """

    records: int = 10_000
    age_s: float | None = None

    def __post_init__(self) -> None:
        if self.records < 1:
            raise ValueError(f"at least 1 record is kept, not {self.records!r}")
        if self.age_s is not None and not self.age_s > 0:
            raise ValueError(f"age_s is above 0, not {self.age_s!r}")


# Part of the fold, so that every replay forgets the same things: not configurable.
SETTLED_ASKS_KEPT = 256
COMMANDS_KEPT = 10_000
COMMANDS_KEPT_S = 86_400.0

# Words that go with a cancel or a declined ask: part of the wire's schema, so not configurable either.
MAX_NOTE_CHARS = 4_000
