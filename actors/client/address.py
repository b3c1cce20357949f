"""Where a gateway is: `ws://host:port/path` taken apart. Pure."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from actors.client.errors import ConnectFailed

_PORTS = {"ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A checked URL. `host_header` is what the Host header says."""

    secure: bool
    host: str
    port: int
    resource: str

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS["wss" if self.secure else "ws"] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'wss' if self.secure else 'ws'}://{self.host_header}{self.resource}"


def parse_url(url: str) -> Address:
    """Return the parts of a websocket URL; without a path it is `/ws`.

    Raises:
        ConnectFailed: Another scheme, no host, a port that is none, or what must not be in it (user, query, fragment:
            a token belongs into a header, where no log keeps it).
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConnectFailed(f"the address cannot be read: {error}") from None
    if parts.scheme not in _PORTS:
        raise ConnectFailed("the address must be a URL that begins with ws:// or wss://")
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        raise ConnectFailed("the address names no host, or has characters that a URL may not have")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConnectFailed("the address must not hold a user, a query or a fragment; the token is given apart from it")
    path = parts.path if parts.path not in ("", "/") else "/ws"
    return Address(parts.scheme == "wss", host, port or _PORTS[parts.scheme], path)
