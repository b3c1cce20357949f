"""Walks over what lives in a system: all actors, or the nodes of its tree. Reads only."""

from typing import Any

from actors.runtime import waits
from actors.runtime.actor import Actor
from actors.runtime.owner import Child, Owner
from actors.runtime.tree import Node


def actors_of(supervisor: Owner) -> list[Actor[Any]]:
    found: list[Actor[Any]] = []
    todo: list[Child] = [supervisor]
    while todo:
        child = todo.pop()
        if isinstance(child, Actor):
            found.append(child)
        else:
            todo.extend(reversed(child.members()))
    return found


def node_of(child: Child, now: float) -> Node:
    if isinstance(child, Owner):
        children = tuple(node_of(each, now) for each in child.members())
        return Node(child.name, child.state, children=children, restarts=child.restarts)
    statistics = child.mailbox.statistics()
    return Node(
        child.name,
        child.state,
        depth=len(child.mailbox),
        peak=statistics.peak_buffer_used,
        handling=child.handling_kind,
        handling_s=None if child.current is None else max(0.0, now - child.since),
        asks=len(child.asks),
        restarts=child.restarts,
        waits_for=None if (target := waits.waited_for(child)) is None else target.name,
    )
