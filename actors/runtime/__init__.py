"""Actors on trio: mailboxes, asks, names, supervision. It knows no agents."""

from actors.runtime.channel import MailboxReceiveChannel, MailboxSendChannel, open_mailbox
from actors.runtime.context import Ctx
from actors.runtime.errors import ActorError, ActorGone, AskTimeout, NameTaken, NotAccepting
from actors.runtime.mailbox import Mailbox, MailboxStatistics
from actors.runtime.ref import Down, DownKind, Ref
from actors.runtime.registry import Registry
from actors.runtime.reply import Replies, Reply
from actors.runtime.restart import Backoff, Restart, RestartPolicy
from actors.runtime.supervisor import Crash, Supervisor
from actors.runtime.system import Node, System, SystemStatistics, open_system

__all__ = [
    "ActorError",
    "ActorGone",
    "AskTimeout",
    "Backoff",
    "Crash",
    "Ctx",
    "Down",
    "DownKind",
    "Mailbox",
    "MailboxReceiveChannel",
    "MailboxSendChannel",
    "MailboxStatistics",
    "NameTaken",
    "Node",
    "NotAccepting",
    "Ref",
    "Registry",
    "Replies",
    "Reply",
    "Restart",
    "RestartPolicy",
    "Supervisor",
    "System",
    "SystemStatistics",
    "open_mailbox",
    "open_system",
]
