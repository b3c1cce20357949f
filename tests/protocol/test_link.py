"""Rules of one client link."""

import pytest

from protocol import commands as cmd
from protocol.errors import RuleViolation
from protocol.limits import Limits
from protocol.link import Link, ServerInfo, admit, advance, attach, choose_attach, detach, initialize

SERVER = ServerInfo("trio-actors", "0")
EVERY_OTHER_CALL: list[cmd.Params] = [
    cmd.Open(),
    cmd.Attach(session="s"),
    cmd.Detach(session="s"),
    cmd.Prompt(session="s", text="x"),
    cmd.Steer(session="s", text="x"),
    cmd.Answer(session="s", ask="a"),
    cmd.ExternalEvent(session="s", name="n"),
    cmd.Cancel(session="s"),
    cmd.GetState(session="s"),
    cmd.GetHistory(session="s"),
    cmd.List(),
    cmd.Close(session="s"),
]


def initialized(**limits: int) -> Link:
    link = Link(limits=Limits(**limits))
    initialize(link, cmd.Initialize(protocol=1), SERVER)
    return link


def test_every_method_is_covered_here() -> None:
    assert {type(params) for params in EVERY_OTHER_CALL} | {cmd.Initialize} >= set(cmd.METHODS.values()) - {
        kind for name, kind in cmd.METHODS.items() if name.startswith("ask/") or name == "session/compact"
    }


@pytest.mark.parametrize("params", EVERY_OTHER_CALL, ids=lambda params: type(params).__name__)
def test_nothing_is_done_before_initialize(params: cmd.Params) -> None:
    with pytest.raises(RuleViolation, match=r"^link\.not_initialized: the first call of a connection is `initialize`$"):
        admit(Link(), params)


def test_initialize_negotiates_the_version_and_what_both_can() -> None:
    link = Link(limits=Limits(max_message_bytes=1_000))
    params = cmd.Initialize(
        protocol=[9, 1],
        client=cmd.ClientInfo("editor", "2", "e-1"),
        capabilities=cmd.ClientCapabilities(batch=True),
    )
    admit(link, params)
    result = initialize(link, params, SERVER)
    assert (result.protocol, result.server, result.capabilities.batch) == (1, SERVER, True)
    assert result.limits.max_message_bytes == 1_000
    assert (link.protocol, link.batch, link.client.id) == (1, True, "e-1")


def test_an_unknown_version_is_refused_naming_the_known_ones_and_may_be_tried_again() -> None:
    link = Link()
    with pytest.raises(RuleViolation, match=r"^protocol\.unsupported: protocol 7, 8 is not known; known: 1$"):
        initialize(link, cmd.Initialize(protocol=[7, 8]), SERVER)
    assert not link.protocol
    assert initialize(link, cmd.Initialize(protocol=1), SERVER).protocol == 1


def test_a_second_initialize_is_refused() -> None:
    with pytest.raises(RuleViolation, match=r"^command\.invalid: this connection is initialized already, protocol 1$"):
        initialize(initialized(), cmd.Initialize(protocol=1), SERVER)


@pytest.mark.parametrize("params", EVERY_OTHER_CALL, ids=lambda params: type(params).__name__)
def test_only_who_watches_a_session_may_answer_it(params: cmd.Params) -> None:
    link = initialized()
    if isinstance(params, (cmd.Answer, cmd.ExternalEvent, cmd.Detach)):
        attach(link, "another", 3)
        with pytest.raises(RuleViolation, match=r"^link\.not_attached: attach to the session first"):
            admit(link, params)
        attach(link, "s", 3)
    admit(link, params)


def test_after_detach_it_watches_no_more() -> None:
    link = initialized()
    attach(link, "s", 3)
    advance(link, "s", 5)
    assert detach(link, "s") == 5
    assert detach(link, "s") == 0
    with pytest.raises(RuleViolation, match=r"^link\.not_attached"):
        admit(link, cmd.Answer(session="s", ask="a"))


def test_a_link_watches_a_limited_number_of_sessions_and_may_attach_again_to_them() -> None:
    link = initialized(max_attached=2)
    attach(link, "a", 1)
    attach(link, "b", 1)
    admit(link, cmd.Attach(session="b"))
    with pytest.raises(
        RuleViolation, match=r"^session\.limit: a connection attaches to at most 2 sessions; detach one$"
    ):
        admit(link, cmd.Attach(session="c"))


def test_a_cursor_goes_forward_only_and_only_where_it_is_attached() -> None:
    link = initialized()
    attach(link, "s", 5)
    advance(link, "s", 7)
    advance(link, "s", 6)
    advance(link, "other", 9)
    assert link.cursors == {"s": 7}
    attach(link, "s", 2)
    assert link.cursors == {"s": 2}


@pytest.mark.parametrize(
    ("head", "oldest", "wanted", "expected"),
    [
        (10, 1, ("", 0), ("snapshot", 11)),
        (10, 1, ("", 10), ("snapshot", 11)),
        (10, 1, ("old", 0), ("reset", 11)),
        (10, 1, ("old", 10), ("reset", 11)),
        (10, 1, ("log", 0), ("tail", 1)),
        (10, 1, ("log", 9), ("tail", 10)),
        (10, 1, ("log", 10), ("tail", 11)),
        (10, 1, ("log", 11), ("reset", 11)),
        (10, 5, ("log", 3), ("snapshot", 11)),
        (10, 5, ("log", 4), ("tail", 5)),
        (0, 1, ("log", 0), ("tail", 1)),
        (107, 1, ("log", 7), ("tail", 8)),
        (107, 1, ("log", 6), ("snapshot", 108)),
    ],
)
def test_where_a_client_goes_on_is_decided_by_log_and_cursor_alone_d07_d29(
    head: int, oldest: int, wanted: tuple[str, int], expected: tuple[str, int]
) -> None:
    assert choose_attach("log", head, oldest, *wanted, max_tail=100) == expected
