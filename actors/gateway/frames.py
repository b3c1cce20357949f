"""Counts what a client sends, frame by frame, before anything is kept of it.

Reads only the headers of websocket frames (RFC 6455, 5.2) and skips over payloads: enough to bound a message in bytes
and in fragments by what is announced, to know which messages wait to be taken, and to see a Close. Knows no sockets;
whether frames are well-formed is for the parser behind it to say.
"""

from collections import deque

from protocol.errors import RemoteProtocolError

MAX_FRAGMENTS = 1_024

_FIN, _MASKED = 0x80, 0x80
_OPCODE, _LENGTH = 0x0F, 0x7F
_CLOSE, _CONTROL = 0x8, 0x8


class FrameMeter:
    """The running count of one connection.

    Attributes:
        frames: How many frames have begun.
        waiting_bytes: Size of the complete messages that nobody has taken yet.
        saw_close: A Close frame has begun.
    """

    __slots__ = ("_fin", "_fragments", "_header", "_left", "_max", "_message", "_sizes", "frames", "saw_close",
                 "waiting_bytes")  # fmt: skip

    def __init__(self, *, max_message_bytes: int) -> None:
        self.frames = 0
        self.waiting_bytes = 0
        self.saw_close = False
        self._max = max_message_bytes
        self._header = bytearray()
        self._left = 0
        self._fin = False
        self._message = 0
        self._fragments = 0
        self._sizes: deque[int] = deque()

    def feed(self, data: bytes | bytearray) -> None:
        """Count `data`.

        Raises:
            RemoteProtocolError: 1009 - a message is, or says it will be, over the limit; 1008 - too many fragments.
        """
        position, end = 0, len(data)
        while position < end:
            if self._left:
                step = min(self._left, end - position)
                self._left -= step
                position += step
                if not self._left:
                    self._end_frame()
                continue
            self._header.append(data[position])
            position += 1
            size = _header_size(self._header)
            if len(self._header) < size:
                more = min(size - len(self._header), end - position)
                self._header += data[position : position + more]
                position += more
            if len(self._header) == _header_size(self._header):
                self._begin_frame()

    def take(self) -> None:
        """Note that the oldest complete message was taken."""
        if self._sizes:
            self.waiting_bytes -= self._sizes.popleft()

    def _begin_frame(self) -> None:
        first, second = self._header[0], self._header[1] & _LENGTH
        self.frames += 1
        length = second if second < 126 else int.from_bytes(self._header[2 : 4 if second == 126 else 10], "big")
        self._header.clear()
        opcode = first & _OPCODE
        self._fin = False
        if opcode >= _CONTROL:
            self.saw_close = self.saw_close or opcode == _CLOSE
        else:
            self._fin = bool(first & _FIN)
            self._message += length
            self._fragments += 1
            if self._message > self._max:
                raise RemoteProtocolError(f"a message has at most {self._max} bytes", close_code=1009)
            if self._fragments > MAX_FRAGMENTS:
                raise RemoteProtocolError(f"a message has at most {MAX_FRAGMENTS} fragments", close_code=1008)
        self._left = length
        if not length:
            self._end_frame()

    def _end_frame(self) -> None:
        if self._fin:
            self._sizes.append(self._message)
            self.waiting_bytes += self._message
            self._message = self._fragments = 0
            self._fin = False


def _header_size(header: bytearray) -> int:
    """How long the header will be, as far as its beginning tells."""
    if len(header) < 2:
        return 2
    length = header[1] & _LENGTH
    return 2 + (8 if length == 127 else 2 if length == 126 else 0) + (4 if header[1] & _MASKED else 0)
