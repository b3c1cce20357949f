"""Rules of Host, Origin and token."""

import pytest

from actors.gateway.access import Access, host_allowed, make_access, make_token, origin_allowed, token_allowed

TOKEN = "t" * 22


def access(host: str = "127.0.0.1", port: int = 8000, **options: list[str]) -> Access:
    return make_access(host, port, TOKEN, **options)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"])
def test_loopback_is_served_on_the_port_that_is_bound(host: str) -> None:
    assert host_allowed(access(), host)


@pytest.mark.parametrize(
    "host", ["", "localhost", "localhost:8001", "localhost:8000.evil.example", "evil.example", "evil.example:8000",
             "127.0.0.1:8000@evil.example", "xn--0", "localhost:8000 "]
)  # fmt: skip
def test_every_other_host_is_not(host: str) -> None:
    assert not host_allowed(access(), host)


def test_a_named_host_is_served_with_and_without_its_port_and_an_exact_one_only_as_written() -> None:
    rules = access(hosts=["Desk.Example", "proxy.example:443"])
    assert host_allowed(rules, "desk.example")
    assert host_allowed(rules, "desk.example:8000")
    assert host_allowed(rules, "proxy.example:443")
    assert not host_allowed(rules, "proxy.example")
    assert not host_allowed(rules, "desk.example:443")


def test_on_port_80_a_browser_leaves_the_port_out() -> None:
    assert host_allowed(access(port=80), "localhost")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://localhost:8000", True),
        ("http://127.0.0.1:8000", True),
        ("https://app.example", True),
        ("https://localhost:8000", False),
        ("http://localhost", False),
        ("https://app.example:444", False),
        ("https://app.example.evil.example", False),
        ("https://evil-app.example", False),
        ("HTTPS://app.example", False),
        ("null", False),
        ("", False),
        ("*", False),
    ],
)
def test_an_origin_is_allowed_exactly_or_not_at_all(origin: str | None, allowed: bool) -> None:
    assert origin_allowed(access(origins=["https://app.example"]), origin) is allowed


@pytest.mark.parametrize(
    ("authorization", "subprotocols", "allowed"),
    [
        (None, [], False),
        (f"Bearer {TOKEN}", [], True),
        (f"bearer   {TOKEN}", [], True),
        (None, ["actors.v1", f"bearer.{TOKEN}"], True),
        (f"Bearer {TOKEN}", [f"bearer.{TOKEN}"], True),
        (f"Bearer {TOKEN}", ["bearer.wrong"], False),
        ("Bearer wrong", [f"bearer.{TOKEN}"], False),
        (f"Basic {TOKEN}", [], False),
        (f"Basic {TOKEN}", [f"bearer.{TOKEN}"], False),
        (TOKEN, [], False),
        ("Bearer ", [], False),
        (f"Bearer {TOKEN}x", [], False),
        (None, ["bearer."], False),
        (None, [TOKEN], False),
    ],
)
def test_every_token_that_is_shown_must_be_the_right_one(
    authorization: str | None, subprotocols: list[str], allowed: bool
) -> None:
    assert token_allowed(access(), authorization, subprotocols) is allowed


def test_made_tokens_are_long_differ_and_can_be_sent() -> None:
    tokens = {make_token() for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        assert len(token) >= 43
        make_access("127.0.0.1", 1, token)


def test_the_token_is_not_in_the_repr() -> None:
    assert TOKEN not in repr(access())


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("short", r"^a token has 22-512 characters, this one has 5$"),
        ("t" * 513, r"^a token has 22-512 characters, this one has 513$"),
        ("token with spaces in it, which is long", r"^a token is made of A-Z a-z 0-9 \. _ ~ \+ - only$"),
        ("t" * 22 + "\n", r"^a token is made of A-Z a-z 0-9 \. _ ~ \+ - only$"),
    ],
)
def test_a_token_that_is_no_secret_or_cannot_be_sent_is_refused(token: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_access("127.0.0.1", 1, token)


@pytest.mark.parametrize("host", ["*", "http://a.example", "a.example/x", "a b", ""])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"^a host is `name` or `name:port`, not "):
        access(hosts=[host])


@pytest.mark.parametrize("origin", ["*", "null", "a.example", "https://a.example/", "https://"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match=r"^an origin is `scheme://host` or `scheme://host:port`, not "):
        access(origins=[origin])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_listening_everywhere_needs_names(host: str) -> None:
    with pytest.raises(ValueError, match=r"^listening on every address \(.*\) needs `hosts`: the names it is reached"):
        access(host)
    assert host_allowed(access(host, hosts=["desk.example"]), "desk.example:8000")


def test_the_address_that_is_bound_is_served() -> None:
    assert host_allowed(access("192.168.1.9"), "192.168.1.9:8000")
    assert host_allowed(access("fe80::1"), "[fe80::1]:8000")
