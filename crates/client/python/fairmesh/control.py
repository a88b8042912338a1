"""HTTP and JSON over `control.sock`."""

from __future__ import annotations

import http.client
import json
import os
import socket
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union
from urllib.parse import urlencode

SOCKET_DEFAULT = "/run/fairmesh/control.sock"


class Refused(Exception):
    """The node understood and refused; `hint` says what to do, where it does."""

    def __init__(self, status: int, error: str, hint: Optional[str]) -> None:
        super().__init__(error if hint is None else f"{error} ({hint})")
        self.status = status
        self.error = error
        self.hint = hint


@dataclass(frozen=True)
class Record:
    """A job, whose, when and on how many cores. At least one of user, account, group and subject is given."""

    cluster: str
    job: str
    start_ms: int
    end_ms: int
    cores: int
    user: Optional[str] = None
    account: Optional[str] = None
    group: Optional[str] = None
    subject: Optional[str] = None
    instance: int = 0
    gpus: int = 0
    mem_mib: int = 0

    def line(self) -> str:
        """As a feed has it."""
        fields = {key: value for key, value in asdict(self).items() if value is not None}
        return json.dumps(fields) + "\n"


@dataclass(frozen=True)
class Report:
    """What became of a report. What was counted is durable."""

    read: int
    counted: int
    known: int
    unmapped: int
    late: int
    refused: int
    charge_core_ms: int
    refusals: List[Mapping[str, Any]] = field(default_factory=list)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("fairmesh", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Node:
    """A node, by its control socket."""

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, timeout: float = 60.0) -> None:
        self.path = os.fspath(path or os.environ.get("FAIRMESH_SOCKET") or SOCKET_DEFAULT)
        self.timeout = timeout

    def get(self, endpoint: str, /, **parameters: Optional[str]) -> Dict[str, Any]:
        """The answer to `GET endpoint`, with those parameters that are given."""
        given = {key: value for key, value in parameters.items() if value is not None}
        return self._ask("GET", f"{endpoint}?{urlencode(given)}" if given else endpoint)

    def priority(self, user: str, account: Optional[str] = None, group: Optional[str] = None) -> Dict[str, Any]:
        """Where a user stands: `factor`, `rank`, and the levels from the root down."""
        return self.get("/v1/priority", user=user, account=account, group=group)

    def explain(self, user: str, account: Optional[str] = None, versus: Optional[str] = None) -> Dict[str, Any]:
        """Why a user stands there, alone or against another."""
        return self.get("/v1/explain", user=user, account=account, versus=versus)

    def shares(self, path: Optional[str] = None) -> List[Dict[str, Any]]:
        """Target and actual share of each entry."""
        entries: List[Dict[str, Any]] = self.get("/v1/shares", path=path)["entries"]
        return entries

    def quota(self) -> List[Dict[str, Any]]:
        """The credit of each account that has one."""
        accounts: List[Dict[str, Any]] = self.get("/v1/quota")["accounts"]
        return accounts

    def status(self) -> Dict[str, Any]:
        """The node, its VOs, its peers, and what is wrong."""
        return self.get("/v1/status")

    def report(self, records: Iterable[Record]) -> Report:
        """Reports jobs. Whoever may not write gets a `Refused`."""
        lines = "".join(record.line() for record in records)
        answer = self._ask("POST", "/v1/records", lines.encode())
        counts = {name: int(answer[name]) for name in Report.__annotations__ if name != "refusals"}
        return Report(**counts, refusals=answer["refusals"])

    def _ask(self, method: str, target: str, body: Optional[bytes] = None) -> Dict[str, Any]:
        connection = _UnixConnection(self.path, self.timeout)
        try:
            try:
                connection.request(method, target, body)
            except (BrokenPipeError, ConnectionResetError):
                # Whoever is refused may have his answer before all of it is sent.
                pass
            response = connection.getresponse()
            answer: Dict[str, Any] = json.loads(response.read())
        finally:
            connection.close()
        if response.status != 200:
            raise Refused(response.status, answer["error"], answer.get("hint"))
        return answer
