"""The phases of a run as a table. Anything that is not in it is a bug, and raises.

    created -> loading_context -> ready <-> generating | running_tool | compacting -> completed | failed | cancelled
"""

from enum import StrEnum

from protocol.errors import LocalProtocolError


class Phase(StrEnum):
    CREATED = "created"
    LOADING_CONTEXT = "loading_context"
    READY = "ready"
    GENERATING = "generating"
    RUNNING_TOOL = "running_tool"
    COMPACTING = "compacting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})
_BROKEN_OFF = frozenset({Phase.FAILED, Phase.CANCELLED})
_WORK = frozenset({Phase.GENERATING, Phase.RUNNING_TOOL, Phase.COMPACTING})

TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.CREATED: frozenset({Phase.LOADING_CONTEXT}) | _BROKEN_OFF,
    Phase.LOADING_CONTEXT: frozenset({Phase.READY}) | _BROKEN_OFF,
    Phase.READY: _WORK | ENDS,
    Phase.GENERATING: frozenset({Phase.READY}) | _BROKEN_OFF,
    Phase.RUNNING_TOOL: frozenset({Phase.READY}) | _BROKEN_OFF,
    Phase.COMPACTING: frozenset({Phase.READY}) | _BROKEN_OFF,
    Phase.COMPLETED: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.CANCELLED: frozenset(),
}


def enter(old: Phase, new: Phase) -> Phase:
    """Return `new`.

    Raises:
        LocalProtocolError: The table does not lead from `old` to `new`.
    """
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(TRANSITIONS[old])) or "nothing: it is an end"
        raise LocalProtocolError(f"a run cannot go {old} -> {new}; from {old} it may go to {allowed}")
    return new
