"""Who may connect: the rules of Host, Origin and token, as functions of one small record. Deny by default.

Decides on what a request claims; knows no sockets and reads no requests. Every match is exact: a prefix, a suffix or a
pattern is how foreign pages get in. The token never appears in a message, a repr or a log.
"""

import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

BEARER_SUBPROTOCOL = "bearer."
TOKEN_BYTES = 32
# 22 characters of base64 carry 128 bits.
MIN_TOKEN_CHARS = 22
MAX_TOKEN_CHARS = 512

# What may stand both in a header and as a subprotocol.
_TOKEN = re.compile(r"[A-Za-z0-9._~+-]+", re.ASCII)
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+", re.ASCII)
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class Access:
    """What is accepted. `hosts` are `name:port` or `name`, `origins` are `scheme://host[:port]`, all in lower case."""

    hosts: frozenset[str]
    origins: frozenset[str]
    token: str = field(repr=False)


def make_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def make_access(host: str, port: int, token: str, *, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> Access:
    """Return the rules of a gateway that listens on `host` and `port`.

    Args:
        host: The address bound. Loopback names are always served; a wildcard address needs `hosts`.
        port: The port bound. An entry of `hosts` without a port stands for this one, and for none.
        token: What a client must show, 22-512 characters of `A-Z a-z 0-9 . _ ~ + -`.
        hosts: Further names, as clients write them in `Host`.
        origins: Further origins, exactly as browsers write them. The gateway's own, over plain http, are allowed.

    Raises:
        ValueError: The token is too short to be a secret or cannot be sent, a host or an origin is none, or a
            wildcard address is bound without naming the hosts: any page could then reach it by rebinding a name.
    """
    check_token_shape(token)
    named = [check_shape(name, _HOST, "a host is `name` or `name:port`") for name in hosts]
    if host in _WILDCARDS and not named:
        raise ValueError(f"listening on every address ({host!r}) needs `hosts`: the names it is reached by")
    own = () if host in _WILDCARDS else (f"[{host}]" if ":" in host else host,)
    allowed: set[str] = set()
    for name in (*_LOOPBACK, *own, *named):
        allowed.add(name.lower())
        if not _has_port(name):
            allowed.add(f"{name.lower()}:{port}")
    # Without its port a name means the default one; loopback is only ever reached by the port that is bound.
    if port != 80:
        allowed.difference_update(_LOOPBACK)
    foreign = {
        check_shape(origin, _ORIGIN, "an origin is `scheme://host` or `scheme://host:port`") for origin in origins
    }
    return Access(frozenset(allowed), frozenset({f"http://{name}" for name in allowed} | foreign), token)


def check_token_shape(token: str) -> None:
    """Check that `token` can be a secret and can be sent.

    Raises:
        ValueError: It cannot. The message does not show it.
    """
    if not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS:
        raise ValueError(f"a token has {MIN_TOKEN_CHARS}-{MAX_TOKEN_CHARS} characters, this one has {len(token)}")
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token is made of A-Z a-z 0-9 . _ ~ + - only")


def check_shape(text: str, shape: re.Pattern[str], rule: str) -> str:
    """Return `text` in lower case if it has the shape.

    Raises:
        ValueError: `rule`, and the text.
    """
    if not shape.fullmatch(text.lower()):
        raise ValueError(f"{rule}, not {text!r}")
    return text.lower()


def _has_port(name: str) -> bool:
    return ":" in name.rpartition("]")[2]


def host_allowed(access: Access, host: str) -> bool:
    """Say whether this is one of the gateway's names. It keeps pages out that rebound a name of theirs to it."""
    return host.lower() in access.hosts


def origin_allowed(access: Access, origin: str | None) -> bool:
    """Say whether a page of this origin may connect. None: not a browser. `null` is nobody and never allowed."""
    return origin is None or origin in access.origins


def token_allowed(access: Access, authorization: str | None, subprotocols: Sequence[str]) -> bool:
    """Say whether the token was shown, in `Authorization` or as subprotocol `bearer.TOKEN`. Takes constant time.

    Every token shown must be the right one.
    """
    shown: list[str] = []
    if authorization is not None:
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return False
        shown.append(value.strip())
    prefix = BEARER_SUBPROTOCOL
    shown += [name[len(prefix) :] for name in subprotocols if name.startswith(prefix)]
    right = [hmac.compare_digest(value.encode(), access.token.encode()) for value in shown]
    return bool(right) and all(right)
