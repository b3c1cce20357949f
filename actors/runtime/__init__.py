"""Actors on trio: mailboxes, asks, names, supervision. It knows no agents."""

from actors.runtime.channel import MailboxReceiveChannel, MailboxSendChannel, open_mailbox
from actors.runtime.context import Ctx
from actors.runtime.deadletters import DeadLetter, DeadLetters
from actors.runtime.errors import (
    ActorError,
    ActorGone,
    AskCycle,
    AskTimeout,
    MailboxFull,
    MessageDropped,
    NameTaken,
    NotAccepting,
    StashFull,
    TooManyChildren,
)
from actors.runtime.figures import SystemStatistics
from actors.runtime.group import Strategy
from actors.runtime.mailbox import Lost, Mailbox, MailboxStatistics
from actors.runtime.overflow import Latest, Overflow, latest
from actors.runtime.parts import ChildTask, Timer
from actors.runtime.ref import Down, DownKind, Ref
from actors.runtime.registry import Registry
from actors.runtime.reply import Replies, Reply
from actors.runtime.reports import Crash
from actors.runtime.restart import Backoff, Budget, Restart, RestartPolicy
from actors.runtime.supervisor import Supervisor
from actors.runtime.system import System, open_system
from actors.runtime.threads import InlineThreads, Threads, WorkerThreads
from actors.runtime.tree import Node, dump_on_signal
from actors.runtime.wheel import Alarm

__all__ = [
    "ActorError",
    "ActorGone",
    "Alarm",
    "AskCycle",
    "AskTimeout",
    "Backoff",
    "Budget",
    "ChildTask",
    "Crash",
    "Ctx",
    "DeadLetter",
    "DeadLetters",
    "Down",
    "DownKind",
    "InlineThreads",
    "Latest",
    "Lost",
    "Mailbox",
    "MailboxFull",
    "MailboxReceiveChannel",
    "MailboxSendChannel",
    "MailboxStatistics",
    "MessageDropped",
    "NameTaken",
    "Node",
    "NotAccepting",
    "Overflow",
    "Ref",
    "Registry",
    "Replies",
    "Reply",
    "Restart",
    "RestartPolicy",
    "StashFull",
    "Strategy",
    "Supervisor",
    "System",
    "SystemStatistics",
    "Threads",
    "Timer",
    "TooManyChildren",
    "WorkerThreads",
    "dump_on_signal",
    "latest",
    "open_mailbox",
    "open_system",
]
