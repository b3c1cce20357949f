"""What agents can be extended with: planning, questions to people."""

from actors.extensions.ask_user import AskUserExtension
from actors.extensions.external import ExternalEventExtension
from actors.extensions.todo import TodoWriteExtension

__all__ = ["AskUserExtension", "ExternalEventExtension", "TodoWriteExtension"]
