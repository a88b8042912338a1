"""The look-up protocol of `lookup.sock`, by name: docs/lookup.md."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any, List, Optional, Sequence, Tuple, Type, Union

SOCKET_DEFAULT = "/run/fairmesh/lookup.sock"


def _usual_path() -> str:
    """Beside the control socket, where `FAIRMESH_SOCKET` names one."""
    control = os.environ.get("FAIRMESH_SOCKET")
    return os.path.join(os.path.dirname(control), "lookup.sock") if control else SOCKET_DEFAULT


#: The highest factor: whoever has it is served first.
FACTOR_MAX = 1_000_000_000

#: Most rows of one request.
BATCH_MAX = 65_536

_UNKNOWN = 0xFFFF_FFFF
_FRAME_BYTES_MAX = 4_194_304
_VERSION = 1


class LookupFailed(Exception):
    """The node refused, or what came is not the protocol."""


@dataclass(frozen=True)
class View:
    """What an answer rests on."""

    as_of_ms: int
    age_ms: int
    sites_known: int
    sites: int
    flags: int
    ranking: int
    step: int


@dataclass(frozen=True)
class Answer:
    """A factor for each row, `None` for whom no rule maps; all of one view."""

    view: View
    factors: List[Optional[int]]


class Lookup:
    """A connection. Keep it: connecting costs more than asking."""

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, timeout: float = 10.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        self._socket.connect(os.fspath(path or _usual_path()))
        self._id = 0

    def factors(self, who: Sequence[Tuple[str, Optional[str]]]) -> Answer:
        """The factors of (user, account) pairs, in their order."""
        if len(who) > BATCH_MAX:
            raise ValueError(f"at most {BATCH_MAX} rows fit in one request")
        self._id += 1
        body = b"\xa4\x01\x01\x02" + _head(0, self._id) + b"\x03\x00\x04"
        rows = struct.pack(">I", len(who)) + b"".join(_row(user, account) for user, account in who)
        body += _head(2, len(rows)) + rows
        self._socket.sendall(struct.pack(">I", len(body)) + body)
        answer = self._frame()
        if answer.get(3) != 0:
            raise LookupFailed(answer.get(7, "the node gave no reason"))
        column = answer[5]
        if answer.get(1) != _VERSION or answer.get(2) != self._id or len(column) != 4 * len(who):
            raise LookupFailed("the answer is not to this request")
        values = struct.unpack(f">{len(who)}I", column)
        view = answer[4]
        return Answer(
            View(*(view.get(key, 0) for key in (1, 2, 3, 4, 7, 9, 10))),
            [None if value == _UNKNOWN else value for value in values],
        )

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def __enter__(self) -> "Lookup":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _frame(self) -> Any:
        (length,) = struct.unpack(">I", self._bytes(4))
        if length > _FRAME_BYTES_MAX:
            raise LookupFailed(f"a frame of {length} bytes")
        value, end = _decode(self._bytes(length), 0)
        if end != length or not isinstance(value, dict):
            raise LookupFailed("the answer is no map")
        return value

    def _bytes(self, count: int) -> bytes:
        read = bytearray()
        while len(read) < count:
            piece = self._socket.recv(count - len(read))
            if not piece:
                raise LookupFailed("the node has closed the connection")
            read += piece
        return bytes(read)


def _row(user: str, account: Optional[str]) -> bytes:
    names = [user] if account is None else [user, account]
    encoded = [name.encode() for name in names]
    if not all(1 <= len(name) <= 512 for name in encoded):
        raise ValueError("a name has 1 to 512 bytes")
    return bytes([1 if account is None else 3]) + b"".join(struct.pack(">H", len(name)) + name for name in encoded)


def _head(kind: int, number: int) -> bytes:
    """The shortest head of a CBOR value."""
    if number < 24:
        return bytes([kind << 5 | number])
    for code, form, end in ((24, ">B", 1 << 8), (25, ">H", 1 << 16), (26, ">I", 1 << 32)):
        if number < end:
            return bytes([kind << 5 | code]) + struct.pack(form, number)
    return bytes([kind << 5 | 27]) + struct.pack(">Q", number)


def _decode(data: bytes, at: int) -> Tuple[Any, int]:
    """A value of those that answers are made of (numbers, bytes, text, maps), and where it ends."""
    if at >= len(data):
        raise LookupFailed("the answer is cut off")
    kind, number = data[at] >> 5, data[at] & 31
    at += 1
    if number >= 24:
        size = {24: 1, 25: 2, 26: 4, 27: 8}.get(number)
        if size is None or at + size > len(data):
            raise LookupFailed("the answer is no CBOR")
        number = int.from_bytes(data[at : at + size], "big")
        at += size
    if kind == 0:
        return number, at
    if kind in (2, 3):
        if at + number > len(data):
            raise LookupFailed("the answer is cut off")
        piece = data[at : at + number]
        return (piece if kind == 2 else piece.decode()), at + number
    if kind == 5:
        found = {}
        for _ in range(number):
            key, at = _decode(data, at)
            found[key], at = _decode(data, at)
        return found, at
    raise LookupFailed(f"the answer has a value of CBOR's kind {kind}")
