"""Everything that can be refused, with its stable code.

Codes are `noun.reason`, listed once here; `docs/protocol.md` prints this table. The words of the documented planning
tools (`INVALID_ARGS`, `INVALID_TODOS`) appear only inside those tools' results and are not codes of the wire.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Code(StrEnum):
    """A stable reason, safe to switch on. The text beside it is for people and may change."""

    ACCESS_DENIED = "access.denied"
    ASK_CANCELLED = "ask.cancelled"
    ASK_DECLINED = "ask.declined"
    ASK_INVALID = "ask.invalid"
    ASK_NO_RESPONDER = "ask.no_responder"
    ASK_SETTLED = "ask.settled"
    ASK_TIMED_OUT = "ask.timed_out"
    ASK_UNKNOWN = "ask.unknown"
    CALL_INTERRUPTED = "call.interrupted"
    CALL_INVALID = "call.invalid"
    CALL_SKIPPED = "call.skipped"
    COMMAND_INVALID = "command.invalid"
    EVENT_TOO_LARGE = "event.too_large"
    EVENT_UNSENDABLE = "event.unsendable"
    EXTENSION_FAILED = "extension.failed"
    LINK_NOT_ATTACHED = "link.not_attached"
    LINK_NOT_INITIALIZED = "link.not_initialized"
    LINK_TOO_SLOW = "link.too_slow"
    MODEL_FAILED = "model.failed"
    MODEL_INVALID = "model.invalid"
    MODEL_TRUNCATED = "model.truncated"
    NO_RESPONDER = "no_responder"
    PROTOCOL_UNSUPPORTED = "protocol.unsupported"
    RUN_CANCELLED = "run.cancelled"
    RUN_MAX_TURNS = "run.max_turns"
    RUN_SETTLED = "run.settled"
    RUN_UNKNOWN = "run.unknown"
    SESSION_BUSY = "session.busy"
    SESSION_CLOSED = "session.closed"
    SESSION_CRASHED = "session.crashed"
    SESSION_IDLE = "session.idle"
    SESSION_INVALID = "session.invalid"
    SESSION_LIMIT = "session.limit"
    SESSION_UNKNOWN = "session.unknown"
    STORE_DAMAGED = "store.damaged"
    STORE_FAILED = "store.failed"
    TODO_REFUSED = "todo.refused"
    TOOL_FAILED = "tool.failed"
    TOOL_INVALID_ARGS = "tool.invalid_args"
    TOOL_UNKNOWN = "tool.unknown"


MEANINGS: dict[Code, str] = {
    Code.ACCESS_DENIED: "Host, Origin or token was not accepted; nothing was done.",
    Code.ASK_CANCELLED: "The question was withdrawn; the call that put it has no answer.",
    Code.ASK_DECLINED: "The user declined to answer the question.",
    Code.ASK_INVALID: "The answer does not fit the question; the ask stays open.",
    Code.ASK_NO_RESPONDER: "Nobody was there who could answer the question.",
    Code.ASK_SETTLED: "The ask already has its outcome; `details` say which.",
    Code.ASK_TIMED_OUT: "Nobody answered the question in time.",
    Code.ASK_UNKNOWN: "No ask of that session has this id.",
    Code.CALL_INTERRUPTED: "The tool call had started when its run ended; it may have had effects.",
    Code.CALL_INVALID: "The model made a tool call that cannot be used: no name, arguments that are not a JSON object.",
    Code.CALL_SKIPPED: "The tool call had not started when its run ended; it had no effects.",
    Code.COMMAND_INVALID: "The command's parameters do not have the documented shape; `details` say where.",
    Code.EVENT_TOO_LARGE: "What was to be recorded is over the size limit.",
    Code.EVENT_UNSENDABLE: "What was to be recorded cannot be written as JSON (not a number, not text, too deep).",
    Code.EXTENSION_FAILED: "A hook of an extension raised.",
    Code.LINK_NOT_ATTACHED: "This connection is not attached to that session.",
    Code.LINK_NOT_INITIALIZED: "The first call of a connection must be `initialize`.",
    Code.LINK_TOO_SLOW: "The client took events too slowly and was cut off; it may attach again with its cursor.",
    Code.MODEL_FAILED: "The model raised an error.",
    Code.MODEL_INVALID: "The model's message cannot be used, for example calls glued together.",
    Code.MODEL_TRUNCATED: "The model's stream ended before its message did; nothing of it was executed.",
    Code.NO_RESPONDER: "The model asked a question and nobody is there who could answer.",
    Code.PROTOCOL_UNSUPPORTED: "None of the protocol versions offered is known; `details` list the known ones.",
    Code.RUN_CANCELLED: "The run was cancelled.",
    Code.RUN_MAX_TURNS: "The run reached its limit of model calls without a final answer.",
    Code.RUN_SETTLED: "The run has ended; nothing more of it is recorded.",
    Code.RUN_UNKNOWN: "No run of that session has this id.",
    Code.SESSION_BUSY: "The session has a run already, and was not asked to queue or to steer.",
    Code.SESSION_CLOSED: "The session, or the agent that owns it, is closed.",
    Code.SESSION_CRASHED: "The session's actor, or its process, ended before the run did; the session goes on.",
    Code.SESSION_IDLE: "The session has no run that this could apply to.",
    Code.SESSION_INVALID: "A session id is 1-128 printable characters without spaces.",
    Code.SESSION_LIMIT: "The agent holds as many open sessions as it may.",
    Code.SESSION_UNKNOWN: "No session has this id; `session/open` makes one.",
    Code.STORE_DAMAGED: "Something that was stored of the session cannot be read; the session is not opened.",
    Code.STORE_FAILED: "The store could not keep what happened; nothing uncommitted was acknowledged.",
    Code.TODO_REFUSED: "The todo list breaks a rule of the list; the stored list is unchanged.",
    Code.TOOL_FAILED: "The tool raised an error.",
    Code.TOOL_INVALID_ARGS: "The arguments do not fit the tool's schema; `details` say where.",
    Code.TOOL_UNKNOWN: "The model called a tool that does not exist.",
}


class Detail(Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that is wrong: where (`todos[2].status`), a stable code, a sentence."""

    path: str = ""
    code: str = ""
    message: str = ""


class ActorsError(Exception):
    """Base of what this project raises on purpose."""


class RuleViolation(ActorsError):
    """A rule refused a command; nothing changed. `str()` starts with the stable code."""

    def __init__(self, code: Code, message: str = "", *details: Detail) -> None:
        super().__init__(f"{code}: {message}" if message else str(code))
        self.code = code
        self.message = message or MEANINGS[code]
        self.details = details


class LocalProtocolError(ActorsError):
    """We were about to break the protocol: a bug on this side."""


class RemoteProtocolError(ActorsError):
    """The other side broke the protocol.

    Attributes:
        close_code: The websocket close code that says so, 1002 unless told otherwise.
    """

    def __init__(self, message: str, *, close_code: int = 1002) -> None:
        super().__init__(message)
        self.close_code = close_code


class ModelError(ActorsError):
    """A model could not produce its message. Raise it from a `Model` to give the failure a code of your own."""

    def __init__(self, message: str, *, code: str = Code.MODEL_FAILED) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message


class ToolError(ActorsError):
    """Raise it from a tool to answer the model with a structured error. The run goes on."""

    def __init__(self, message: str, *, code: str = Code.TOOL_FAILED, details: tuple[Detail, ...] = ()) -> None:
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.details = details


class RunFailed(ActorsError):
    """`run()` or `final()` of a run that failed.

    Attributes:
        code: The stable code, also in the `run_failed` event.
        message: A sentence for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class RunCancelled(ActorsError):
    """`run()` or `final()` of a run that was cancelled. Never `trio.Cancelled`: the caller was not cancelled."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason or "the run was cancelled")
        self.reason = reason


def error_payload(code: str, message: str, details: tuple[Detail, ...] = ()) -> dict[str, Any]:
    """Return the one shape in which a model sees an error: `{"error": {"code", "message", "details"?}}`."""
    body: dict[str, Any] = {"code": str(code), "message": message}
    if details:
        body["details"] = [
            {key: value for key, value in (("path", d.path), ("code", d.code), ("message", d.message)) if value}
            for d in details
        ]
    return {"error": body}
