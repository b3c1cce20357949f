"""Which agent a command runs: the embedded one, or one of the user's own by `module:name`."""

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from actors.cli.codes import USAGE, CommandFailed

if TYPE_CHECKING:
    from actors.agent.agent import Agent
    from actors.agent.ports import SessionStore

Factory = Callable[..., object]


def default_agent(
    max_turns: int = 0,
    *,
    store: "SessionStore | None" = None,
    resume: Literal["auto", "ask", "never"] = "auto",
    idle_s: float | None = None,
) -> "AbstractAsyncContextManager[Agent]":
    """Return the embedded agent: it works off a Markdown checklist and needs no network and no key.

    Args:
        max_turns: Model calls that a run will have, where those are more than usual: longer lists are then taken.
        store, resume, idle_s: See `open_agent`.
    """
    from actors import AskUserExtension, ChecklistModel, TodoWriteExtension, open_agent
    from protocol.limits import DEFAULT_LIMITS

    limits = msgspec.structs.replace(DEFAULT_LIMITS, max_turns=max(max_turns, DEFAULT_LIMITS.max_turns))
    return open_agent(
        ChecklistModel(limits=limits),
        extensions=[TodoWriteExtension(), AskUserExtension()],
        store=store,
        resume=resume,
        idle_s=idle_s,
    )


def find_factory(spec: str, max_turns: int | None = None) -> Factory:
    """Return what makes the agent. The module is also looked for in the current directory.

    Args:
        spec: `module:name`, or "" for the embedded agent.
        max_turns: What the embedded agent is told of the runs it will have; None if they are as usual.

    Raises:
        CommandFailed: The module or the name in it does not exist, cannot be imported, or cannot be called.
    """
    if not spec:
        return default_agent if max_turns is None else partial(default_agent, max_turns)
    module_name, colon, attribute = spec.partition(":")
    if not colon or not module_name or not attribute:
        raise CommandFailed(f"--agent is MODULE:NAME, for example mypackage.agents:make, not {spec!r}", USAGE)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: Any = _import(module_name)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise CommandFailed(f"--agent: module {module_name} has no {attribute}", USAGE)
        found = getattr(found, name)
    if not callable(found):
        raise CommandFailed(f"--agent: {spec} is not callable, but of type {type(found).__name__}", USAGE)
    factory: Factory = found
    return factory


def _import(name: str) -> object:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise CommandFailed(f"--agent: there is no module {missing}", USAGE) from None
        raise CommandFailed(f"--agent: importing {name} failed: there is no module {missing}", USAGE) from None
    except Exception as error:
        raise CommandFailed(f"--agent: importing {name} failed: {type(error).__name__}: {error}", USAGE) from None


def takes(factory: Factory, name: str) -> bool:
    """Say whether what makes the agent has a parameter of this name."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return False
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def make_agent(factory: Factory, spec: str, **settings: Any) -> "AbstractAsyncContextManager[Agent]":
    """Return the agent's context manager.

    Args:
        factory: What makes it.
        spec: How the user named that.
        settings: Parameters of `factory`.

    Raises:
        CommandFailed: The user's callable raised, or returned something else.
    """
    try:
        made = factory(**settings)
    except Exception as error:
        if not spec:
            raise
        raise CommandFailed(f"--agent: {spec}() raised {type(error).__name__}: {error}") from error
    if not isinstance(made, AbstractAsyncContextManager):
        if inspect.iscoroutine(made):
            made.close()  # Python would complain that it was never awaited
        raise CommandFailed(
            f"--agent: {spec}() must return an async context manager, as open_agent(...) does, "
            f"not {type(made).__name__}", USAGE
        )  # fmt: skip
    return cast("AbstractAsyncContextManager[Agent]", made)


def check_agent(agent: object, spec: str) -> None:
    """Refuse what the user's context manager gave if it is no agent.

    Raises:
        CommandFailed: It is something else.
    """
    from actors.agent.agent import Agent

    if not isinstance(agent, Agent):
        raise CommandFailed(
            f"--agent: {spec}() must open an agent, as open_agent(...) does, not an object of type "
            f"{type(agent).__name__}", USAGE
        )  # fmt: skip
