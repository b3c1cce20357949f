"""An address is taken apart completely or refused."""

import pytest

from actors.client.address import Address, parse_url
from actors.client.errors import ConnectFailed

NO_TOKEN = "the address must not hold a user, a query or a fragment; the token is given apart from it"


@pytest.mark.parametrize(
    ("url", "address", "host_header"),
    [
        ("ws://127.0.0.1:8765/ws", Address(False, "127.0.0.1", 8765, "/ws"), "127.0.0.1:8765"),
        ("ws://localhost", Address(False, "localhost", 80, "/ws"), "localhost"),
        ("wss://example.org/", Address(True, "example.org", 443, "/ws"), "example.org"),
        ("wss://example.org:80/a/b", Address(True, "example.org", 80, "/a/b"), "example.org:80"),
        ("ws://[::1]:9", Address(False, "::1", 9, "/ws"), "[::1]:9"),
    ],
)
def test_a_url_is_host_port_and_path(url: str, address: Address, host_header: str) -> None:
    assert parse_url(url) == address
    assert address.host_header == host_header


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://x", "the address must be a URL that begins with ws:// or wss://"),
        ("localhost:8765", "the address must be a URL that begins with ws:// or wss://"),
        ("ws://", "the address names no host, or has characters that a URL may not have"),
        ("ws://ho st", "the address names no host, or has characters that a URL may not have"),
        ("ws://bücher.example", "the address names no host, or has characters that a URL may not have"),
        ("ws://h:99999", "the address cannot be read: Port out of range 0-65535"),
        ("ws://h/ws?token=t", NO_TOKEN),
        ("ws://u@h/ws", NO_TOKEN),
        ("ws://h/#t", NO_TOKEN),
    ],
)
def test_what_is_no_such_url_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConnectFailed) as refused:
        parse_url(url)
    assert str(refused.value) == message


def test_an_address_is_shown_as_a_url() -> None:
    assert str(parse_url("wss://example.org:8443")) == "wss://example.org:8443/ws"
