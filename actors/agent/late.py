"""External events for sessions that are not in memory: each waits until its session is there, or there is none.

It decides that a session comes back for an event which names a call, as an answer does. Whether anybody accepts it is
decided by the extensions, as for any other.
"""

import logging
from typing import TYPE_CHECKING

from actors.agent.extension import AgentRunConfig, ExternalEvent
from actors.runtime import ActorError, Ctx
from protocol.errors import RuleViolation

if TYPE_CHECKING:
    from actors.agent.agent import Agent

logger = logging.getLogger("actors.agent")

Late = dict[str, list[tuple[ExternalEvent, AgentRunConfig]]]


def wait_for_session(agent: "Agent", event: ExternalEvent, config: AgentRunConfig | None) -> None:
    """Offer an event, which nobody has accepted, again when its session is in memory. Never a checkpoint.

    Nothing happens where the event names no call, or the session is in memory already: then it is refused.
    """
    session_id = config.session_id if config is not None else None
    if config is None or session_id is None or not isinstance(event.payload.get("tool_call_id"), str):
        return
    if agent.find(session_id) is not None or not agent.durable or agent.closed:
        return
    waiting = agent.late.get(session_id)
    if waiting is not None:
        if len(waiting) < agent.limits.mailbox_size:
            waiting.append((event, config))
        else:
            logger.warning("session %s: %d events wait for it already, one more is dropped", session_id, len(waiting))
        return
    agent.late[session_id] = [(event, config)]
    try:
        agent.start_beside(_offer_late, agent, session_id, name=f"{agent.name}/events for {session_id}")
    except ActorError as error:
        del agent.late[session_id]
        logger.warning("session %s was not brought back for an event: %s", session_id, error)


async def _offer_late(ctx: Ctx[None], agent: "Agent", session_id: str) -> None:
    ctx.ready()
    waiting = agent.late[session_id]
    try:
        handle = await agent.wake_session(session_id)
        if handle is None:
            logger.info("session %s is not there, %d events for it are dropped", session_id, len(waiting))
            return
        for event, config in waiting:
            accepted = agent.broadcast(event, config)
            logger.info("session %s was brought back for %s, accepted by %s", session_id, event.name, accepted)
    except RuleViolation as refused:
        logger.warning("session %s was not brought back for an event: %s", session_id, refused)
    finally:
        del agent.late[session_id]
