from typing import Any

import pytest

from actors import AgentExtension, AgentRunConfig, AgentRunContext, ExternalEvent
from actors.agent.extension import HOOKS, collect_hooks, in_order


class Plain(AgentExtension):
    pass


class Early(AgentExtension):
    priority = 1

    async def on_tool(self, context: AgentRunContext) -> None: ...


def test_a_name_is_the_classs_unless_it_is_given() -> None:
    assert Plain().name == "Plain"
    named = Plain()
    named.name = "mine"
    assert named.name == "mine" and Plain().name == "Plain"

    class Attribute(AgentExtension):
        name = "attribute"

    assert Attribute().name == "attribute"


def test_the_order_is_priority_then_registration() -> None:
    first, second, early = Plain(), Plain(), Early()
    second.name = "second"
    assert in_order([first, second, early]) == (early, first, second)


def test_a_name_that_is_taken_or_blank_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^two extensions are named 'Plain'; assign one of them another name$"):
        in_order([Plain(), Plain()])
    blank = Plain()
    blank.name = "  "
    with pytest.raises(ValueError, match=r"^the name of Plain is blank$"):
        in_order([blank])


def test_what_is_no_extension_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^an extension is an AgentExtension, not <class '.*Plain'>$"):
        in_order([Plain])  # type: ignore[list-item]


def test_only_hooks_that_are_overridden_are_collected() -> None:
    plain, early = Plain(), Early()
    hooks = collect_hooks([early, plain])
    assert hooks.on_tool == (early,)
    assert all(getattr(hooks, name) == () for name in HOOKS if name != "on_tool")


def test_a_hook_assigned_to_an_instance_counts_too() -> None:
    plain = Plain()

    async def before_run(context: AgentRunContext) -> None: ...

    plain.before_run = before_run  # type: ignore[method-assign]
    assert collect_hooks([plain]).before_run == (plain,)


async def test_the_hooks_of_the_base_do_nothing() -> None:
    base: Any = Plain()
    for name in HOOKS:
        hook = getattr(base, name)
        if name == "accept":
            assert hook(None, ExternalEvent("ping")) is False
        elif name == "on_model_request":
            assert hook("context", "request", lambda request: f"stream of {request}") == "stream of request"
        elif name == "on_tool_call":

            async def call_next(call: Any) -> str:
                return f"result of {call}"

            assert await hook("context", "call", call_next) == "result of call"
        else:
            count = hook.__func__.__code__.co_argcount - 1
            assert await hook(*range(count)) is None


def test_an_instance_knows_the_agents_it_is_bound_to() -> None:
    class Agent:
        active_runs = 0

    one, two, plain = Agent(), Agent(), Plain()
    plain.bind(one)  # type: ignore[arg-type]
    plain.bind(two)  # type: ignore[arg-type]
    assert not plain.pending
    two.active_runs = 1
    assert plain.pending
    plain.unbind(two)
    assert not plain.pending
    assert Plain._agents == ()


BAD_EVENTS: list[tuple[Any, Any, type[Exception], str]] = [
    (7, {}, TypeError, "an external event's name is text, not int"),
    ("  ", {}, ValueError, "an external event's name must not be blank"),
    ("x", [1], TypeError, "an external event's payload is a mapping, not list"),
    ("x", {1: 2}, TypeError, "the payload's keys are text, not int"),
]


@pytest.mark.parametrize(("name", "payload", "kind", "text"), BAD_EVENTS)
def test_an_external_event_is_checked_when_it_is_made(
    name: Any, payload: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as raised:
        ExternalEvent(name, payload)
    assert str(raised.value) == text


def test_a_run_config_takes_keywords_only() -> None:
    assert AgentRunConfig(session_id="s").max_turns is None
    with pytest.raises(TypeError):
        AgentRunConfig("s")  # type: ignore[call-arg]
