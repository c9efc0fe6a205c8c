"""Asks a running server over HTTP."""

import asyncio
import json
import os
import select
import socket
import ssl
import time
from http.client import HTTPException, HTTPResponse, IncompleteRead, parse_headers
from io import BytesIO
from threading import Lock
from types import TracebackType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union, cast
from weakref import WeakKeyDictionary

from ._errors import (
    ChargeError,
    InvalidBill,
    InvalidCost,
    InvalidId,
    NotRefundable,
    SelectorError,
    ServerError,
    ServerTimeout,
    ServerUnreachable,
    StoreError,
    UnknownLimit,
    UnknownRule,
)
from ._limiter import Charge, Id, Limit, Rule
from ._tollway import Decision, InlineLimit, Refund

_PORT = 8080
"""The port of a host without one. A server listens there by default."""
_URL_PORT = 80
"""The port of an ``http://`` URL without one."""
_TLS_PORT = 443
"""The port of an ``https://`` URL without one."""
_COST_MAX = 2**64 - 1
_TOKEN_MAX = 512
"""The longest token. A server takes no longer one."""
# A day: longer than anybody waits, and short enough for every timer.
_TIMEOUT_MAX = 86_400
_CHARGES_MAX = 32
_RULES_MAX = 8
# The server closes a connection that was idle for 75 seconds. One that is nearly as old is not used: the server might
# close it while the request is on its way, and nobody could tell if the charge was made.
_IDLE_SECONDS = 60.0
_IDLE_MAX = 32
"""The most idle connections that are kept open."""
_BODY_MAX = 1 << 20
"""The longest answer that is read. Those of a server have less than a kilobyte."""
_PROBLEM_TYPE = "urn:problem-type:tollway:"
_EXCEPTIONS: Dict[str, Type[Exception]] = {
    "unknown-limit": UnknownLimit,
    "unknown-rule": UnknownRule,
    "no-numbers": ChargeError,
    "bad-id": InvalidId,
    "cost-too-high": InvalidCost,
    "no-refund": NotRefundable,
    "bad-bill": InvalidBill,
    "bad-charge": ChargeError,
    "store-unreachable": StoreError,
}


class Client:
    """The limits and rules of a server, with the calls of a ``Limiter``.

        client = Client("127.0.0.1:8080")
        if not client.spend("login", "alice"):
            ...

    A client may be shared by any number of threads and event loops. Connections are kept open between calls. No request
    is ever sent twice, so no charge is paid twice.

    :param address: ``HOST``, ``HOST:PORT``, ``http://HOST:PORT`` or ``https://HOST:PORT``. Without a port, a host means
        8080, the default port of a server, and a URL means 80 or 443.
    :param timeout: the seconds that a call waits for its connection and its answer.
    :param token: the token that is sent with every call, if the server asks for one. Without a token that allows a
        call, the server answers with status 401 or 403, which is a ``ServerError``.
    :param tls: for an ``https://`` address, the file with the certificate authorities to trust, instead of those of the
        system, or an ``ssl.SSLContext``, which can also have a certificate of this client.
    :raises ValueError: the address, the timeout or the token is not valid, or ``tls`` is given without ``https://``.
    :raises OSError: the file of ``tls`` cannot be read, or has no certificate.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8080",
        timeout: float = 1.0,
        token: Optional[str] = None,
        tls: Union[None, str, "os.PathLike[str]", ssl.SSLContext] = None,
    ) -> None:
        self._host, self._port, is_tls = _parse_address(address)
        if tls is not None and not is_tls:
            raise ValueError(f"tls is for an https:// address, and not for {address!r}")
        self._tls = _tls_context(tls) if is_tls else None
        self._address = f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"
        if not 0 < timeout <= _TIMEOUT_MAX:
            raise ValueError(f"timeout must be more than 0 seconds and at most {_TIMEOUT_MAX}, not {timeout}")
        self._timeout = timeout
        self._host_headers = _host_headers(self._address, token)
        self._lock = Lock()
        self._idle: List[_Idle] = []
        self._idle_async: "WeakKeyDictionary[asyncio.AbstractEventLoop, List[_IdleStreams]]" = WeakKeyDictionary()
        self._pid = os.getpid()

    @property
    def address(self) -> str:
        """The address of the server: its host and port."""
        return self._address

    def spend(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Takes ``cost`` from the bucket of ``id`` under ``limit``, if it fits.

        :raises UnknownLimit: no limit of the server has this name.
        :raises InvalidId: the limit does not accept this id, or the id is not UTF-8.
        :raises InvalidCost: the cost is negative, or more than a full bucket holds.
        :raises ServerUnreachable: there is no server, or the connection to it ended.
        :raises ServerTimeout: the server gave no answer in time. It is a ``ServerUnreachable`` too.
        :raises ServerError: the server answered with another problem.
        """
        return cast(Decision, self._call("spend", [(limit, id, cost)]))

    async def spend_async(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Does what ``spend`` does, awaited."""
        return cast(Decision, await self._call_async("spend", [(limit, id, cost)]))

    def check(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Returns the decision that ``spend`` would make. Takes nothing. A cost of 0 asks what is left."""
        return cast(Decision, self._call("check", [(limit, id, cost)]))

    async def check_async(self, limit: Limit, id: Id, cost: int = 1) -> Decision:
        """Does what ``check`` does, awaited."""
        return cast(Decision, await self._call_async("check", [(limit, id, cost)]))

    def refund(self, limit: Limit, id: Id, cost: int = 1) -> Refund:
        """Gives back ``cost`` to the bucket of ``id`` under ``limit``, up to a full bucket.

        :raises NotRefundable: the algorithm of the limit has no refunds.
        :raises StoreError: the store of the server gave no answer.
        """
        return cast(Refund, self._call("refund", [(limit, id, cost)]))

    async def refund_async(self, limit: Limit, id: Id, cost: int = 1) -> Refund:
        """Does what ``refund`` does, awaited."""
        return cast(Refund, await self._call_async("refund", [(limit, id, cost)]))

    def reset(self, limit: Limit, id: Id) -> None:
        """Forgets the bucket of ``id`` under ``limit``.

        The admin gate of a server answers this: ``Client("127.0.0.1:8082")``.

        :raises StoreError: the store of the server gave no answer.
        """
        self._call("reset", [(limit, id)])

    async def reset_async(self, limit: Limit, id: Id) -> None:
        """Does what ``reset`` does, awaited."""
        await self._call_async("reset", [(limit, id)])

    def spend_all(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Takes all the charges and counts the request in all the rules, or does nothing if one of them denies.

            client.spend_all([("account", "alice"), ("address", "192.0.2.1"), ("bytes", "alice", 512)])
            client.spend_all([("bytes", "alice", 512)], rules=[("upload", {"user": "alice"})])

        The decision's ``limit`` is the limit that decided. It is ``None`` if a rule decided, which is then in ``rule``.
        Rules are those of the server's configuration, by their names.

        :raises InvalidBill: there is neither a charge nor a rule, there are more than 32 charges or 8 rules, or two
            charges are for one bucket.
        :raises UnknownRule: no rule of the server has this name.
        :raises SelectorError: a rule has a selector that is not given. One without a value is given as ``None``.
        """
        return cast(Decision, self._call("spend", charges, rules))

    async def spend_all_async(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Does what ``spend_all`` does, awaited."""
        return cast(Decision, await self._call_async("spend", charges, rules))

    def check_all(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Returns the decision that ``spend_all`` would make. Takes nothing, and counts nothing."""
        return cast(Decision, self._call("check", charges, rules))

    async def check_all_async(self, charges: Sequence[Charge], rules: Sequence[Rule] = ()) -> Decision:
        """Does what ``check_all`` does, awaited."""
        return cast(Decision, await self._call_async("check", charges, rules))

    def refund_all(self, charges: Sequence[Charge]) -> Refund:
        """Gives back all the charges, up to full buckets.

        ``refunded`` is true if one bucket got something back, ``remaining`` is the least that is left, and
        ``reset_after`` is the longest time.

        :raises NotRefundable: the algorithm of a limit has no refunds. Nothing was given back.
        :raises InvalidBill: there is no charge, there are more than 32, or two are for one bucket.
        :raises StoreError: the store of the server gave no answer.
        """
        return cast(Refund, self._call("refund", charges))

    async def refund_all_async(self, charges: Sequence[Charge]) -> Refund:
        """Does what ``refund_all`` does, awaited."""
        return cast(Refund, await self._call_async("refund", charges))

    def reset_all(self, charges: Sequence[Charge]) -> None:
        """Forgets the buckets of all the charges. Their costs have no effect.

        The admin gate of a server answers this: ``Client("127.0.0.1:8082")``.

        :raises InvalidBill: there is no charge, there are more than 32, or two are for one bucket.
        :raises StoreError: the store of the server gave no answer.
        """
        self._call("reset", charges)

    async def reset_all_async(self, charges: Sequence[Charge]) -> None:
        """Does what ``reset_all`` does, awaited."""
        await self._call_async("reset", charges)

    def close(self) -> None:
        """Closes the idle connections. A later call opens a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
            streams = [(loop, kept) for loop, all_kept in self._idle_async.items() for kept in all_kept]
            self._idle_async.clear()
        for kept in idle:
            kept.connection.close()
        for loop, kept_streams in streams:
            # Only the thread of a loop may close what belongs to the loop.
            if not loop.is_closed():
                loop.call_soon_threadsafe(kept_streams.writer.close)

    async def close_async(self) -> None:
        """Closes the idle connections of this event loop, and waits until they are closed."""
        with self._lock:
            streams = self._idle_async.pop(asyncio.get_running_loop(), [])
        for kept in streams:
            await _close_streams(kept.writer)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Closes the idle connections."""
        self.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        """Closes the idle connections."""
        await self.close_async()
        self.close()

    def __del__(self) -> None:
        for kept in getattr(self, "_idle", ()):
            kept.connection.close()

    def __repr__(self) -> str:
        return f"Client({self._address!r}, timeout={self._timeout!r})"

    def _call(
        self, verb: str, charges: Sequence[Charge], rules: Sequence[Rule] = ()
    ) -> Union[Decision, Refund, None]:
        request = _request(self._host_headers, verb, charges, rules)
        deadline = time.monotonic() + self._timeout
        connection = self._send(request, deadline)
        try:
            response = HTTPResponse(connection, method="POST")
            connection.settimeout(_left(deadline))
            response.begin()
            body = response.read(_BODY_MAX)
            status, reusable = response.status, response.isclosed() and not response.will_close
            response.close()
        except (socket.timeout, TimeoutError) as error:
            connection.close()
            raise ServerTimeout(self._address, self._timeout, sent=True) from error
        except (OSError, HTTPException) as error:
            connection.close()
            raise _lost(self._address, error) from error
        except BaseException:
            connection.close()
            raise
        if reusable:
            self._keep(connection)
        else:
            connection.close()
        return _answer(status, body)

    def _send(self, request: bytes, deadline: float) -> socket.socket:
        """Sends a request, and returns the connection that it went over."""
        kept = self._take()
        # If not all of the request was sent, the server does nothing with the part. So another connection may be tried
        # without paying twice. After a whole request was sent, nothing is ever tried again.
        if kept is not None and self._transmit(kept, request, deadline) is None:
            return kept
        connection = self._connect(deadline)
        error = self._transmit(connection, request, deadline)
        if error is not None:
            raise _lost(self._address, error) from error
        return connection

    def _connect(self, deadline: float) -> socket.socket:
        """Opens a connection to the server."""
        try:
            connection = socket.create_connection((self._host, self._port), _left(deadline))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                # It closes the socket if the handshake fails.
                connection.settimeout(_left(deadline))
                connection = self._tls.wrap_socket(connection, server_hostname=self._host)
        except (socket.timeout, TimeoutError) as error:
            raise ServerTimeout(self._address, self._timeout) from error
        except (OSError, UnicodeError) as error:
            raise _not_connected(self._address, error) from error
        return connection

    def _transmit(self, connection: socket.socket, request: bytes, deadline: float) -> Optional[OSError]:
        """Sends a request over a connection. Closes it and returns the error if not all of the request was sent."""
        try:
            connection.settimeout(_left(deadline))
            connection.sendall(request)
            return None
        except (socket.timeout, TimeoutError) as error:
            connection.close()
            raise ServerTimeout(self._address, self._timeout, sent=True) from error
        except OSError as error:
            connection.close()
            return error

    def _take(self) -> Optional[socket.socket]:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    # A forked child must not read the answers of its parent. Its copies are closed, the parent's
                    # stay.
                    self._pid = os.getpid()
                    self._idle_async = WeakKeyDictionary()
                    for kept in self._idle:
                        kept.connection.close()
                    self._idle = []
                if not self._idle:
                    return None
                kept = self._idle.pop()
            if time.monotonic() - kept.since < _IDLE_SECONDS and not _is_readable(kept.connection.fileno()):
                return kept.connection
            kept.connection.close()

    def _keep(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                self._idle.append(_Idle(connection, time.monotonic()))
                return
        connection.close()

    async def _call_async(
        self, verb: str, charges: Sequence[Charge], rules: Sequence[Rule] = ()
    ) -> Union[Decision, Refund, None]:
        request = _request(self._host_headers, verb, charges, rules)
        sent = _Sent()
        try:
            status, body = await asyncio.wait_for(self._exchange(request, sent), self._timeout)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise ServerTimeout(self._address, self._timeout, sent=sent.any) from error
        except (OSError, UnicodeError, EOFError, HTTPException, asyncio.LimitOverrunError) as error:
            raise (_lost if sent.any else _not_connected)(self._address, error) from error
        return _answer(status, body)

    async def _exchange(self, request: bytes, sent: "_Sent") -> Tuple[int, bytes]:
        kept = self._take_streams()
        reader, writer = kept or await _open_streams(self._host, self._port, self._tls)
        try:
            sent.any = True
            writer.write(request)
            await writer.drain()
            status, body, reusable = await _read_response(reader)
        except BaseException:
            # A cancelled call leaves an answer behind, which the next call must not take for its own.
            writer.close()
            raise
        if reusable:
            self._keep_streams(reader, writer)
        else:
            await _close_streams(writer)
        return status, body

    def _take_streams(self) -> Optional[Tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Returns an idle connection of this event loop that the server has not closed."""
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                idle = self._idle_async.get(loop) if self._pid == os.getpid() else None
                if not idle:
                    return None
                reader, writer, since = idle.pop()
            stale = reader.at_eof() or writer.is_closing() or time.monotonic() - since >= _IDLE_SECONDS
            # The loop may not have read yet that the server has closed the connection.
            if not stale and not _is_readable(writer.get_extra_info("socket").fileno()):
                return reader, writer
            writer.close()

    def _keep_streams(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._idle, self._idle_async = os.getpid(), [], WeakKeyDictionary()
            idle = self._idle_async.setdefault(asyncio.get_running_loop(), [])
            if len(idle) < _IDLE_MAX:
                idle.append(_IdleStreams(reader, writer, time.monotonic()))
                return
        writer.close()


class _Idle(NamedTuple):
    """A connection that no call uses, and the time since which it is idle."""

    connection: socket.socket
    since: float


class _IdleStreams(NamedTuple):
    """A connection of an event loop that no call uses."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float


class _Sent:
    """True in ``any`` from the moment at which the server may have received a request."""

    any = False


def _parse_address(address: str) -> Tuple[str, int, bool]:
    """Returns the host, the port, and true for TLS."""
    if not isinstance(address, str):
        raise TypeError(f"address must be a str, not {type(address).__name__}")
    is_tls = address.startswith("https://")
    is_url = is_tls or address.startswith("http://")
    text = address.split("://", 1)[1] if is_url else address
    text = text[:-1] if text.endswith("/") else text
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(_TLS_PORT if is_tls else _URL_PORT if is_url else _PORT)
    is_ipv6 = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_ipv6 else host
    is_host = bare and not any(c.isspace() or c in "/?#@*[]" for c in bare) and (":" in bare) == is_ipv6
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not is_host or not is_port:
        raise ValueError(f"invalid address {address!r}; write it as HOST or HOST:PORT, such as 127.0.0.1:{_PORT}")
    return bare, int(port), is_tls


def _tls_context(tls: Union[None, str, "os.PathLike[str]", ssl.SSLContext]) -> ssl.SSLContext:
    """Returns what makes handshakes: it checks the certificate of the server and its name."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    return ssl.create_default_context(cafile=None if tls is None else os.fspath(tls))


def _host_headers(address: str, token: Optional[str]) -> str:
    """Returns the headers that every request has."""
    headers = f"Host: {address}\r\n"
    if token is None:
        return headers
    # The token itself is not repeated: errors are logged.
    if not 0 < len(token) <= _TOKEN_MAX or not all("!" <= character <= "~" for character in token):
        raise ValueError(f"token must have 1 to {_TOKEN_MAX} visible ASCII characters, without spaces")
    return f"{headers}Authorization: Bearer {token}\r\n"


def _request(host_headers: str, verb: str, charges: Sequence[Charge], rules: Sequence[Rule]) -> bytes:
    """Returns a whole request, so that it is sent in one packet."""
    charge_objects = [_charge_object(verb, charge) for charge in charges]
    rule_objects = [_rule_object(rule) for rule in rules]
    if not charge_objects and not rule_objects:
        raise InvalidBill("a bill needs at least one charge or rule")
    for what, objects, most in [("charges", charge_objects, _CHARGES_MAX), ("rules", rule_objects, _RULES_MAX)]:
        if len(objects) > most:
            raise InvalidBill(f"a bill can have at most {most} {what}, and this one has {len(objects)}")
    fields = charge_objects[0] if len(charge_objects) == 1 else {"charges": charge_objects}
    if rule_objects:
        fields["rules"] = rule_objects
    body = json.dumps(fields, separators=(",", ":")).encode()
    head = f"POST /v1/{verb} HTTP/1.1\r\n{host_headers}Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def _charge_object(verb: str, charge: Charge) -> Dict[str, Any]:
    if isinstance(charge, (str, bytes)) or not 2 <= len(charge) <= 3:
        raise TypeError(f"a charge is (limit, id) or (limit, id, cost), not {charge!r}")
    limit, id, cost = charge if len(charge) == 3 else (*charge, 1)
    described: Dict[str, Any] = {"limit": _limit_object(limit), "id": _id_text(id)}
    if verb != "reset":
        described["cost"] = _cost_units(cost)
    return described


def _limit_object(limit: Limit) -> Union[str, Dict[str, Any]]:
    if isinstance(limit, InlineLimit):
        return {"burst": limit.burst, "count": limit.count, "period": limit._period_text}
    return _str("limit must be a str or an InlineLimit", limit)


def _rule_object(rule: Rule) -> Dict[str, Any]:
    if not isinstance(rule, (list, tuple)) or not 2 <= len(rule) <= 3:
        raise TypeError(f"a rule is (name, selectors) or (name, selectors, key), not {rule!r}")
    name, selectors = rule[:2]
    if not isinstance(selectors, Mapping):
        raise TypeError(f"selectors must be a dict, not {type(selectors).__name__}")
    described: Dict[str, Any] = {
        "rule": _str("the name of a rule must be a str", name),
        "selectors": {
            _str("the name of a selector must be a str", selector): None if value is None else _value_text(value)
            for selector, value in selectors.items()
        },
    }
    if len(rule) == 3:
        described["key"] = _str("the key of a rule must be a str", rule[2])
    return described


def _str(expected: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{expected}, not {type(value).__name__}")
    return value


def _id_text(id: Id) -> str:
    try:
        return _text("id must be a str, bytes or an int", id)
    except UnicodeError as error:
        raise InvalidId(f"id {id!r} is not UTF-8; a server accepts such an id only at /v1/gate") from error


def _value_text(value: Id) -> str:
    try:
        return _text("the value of a selector must be a str, bytes, an int or None", value)
    except UnicodeError as error:
        raise ChargeError(f"the value {value!r} of a selector is not UTF-8, and JSON has no other bytes") from error


def _text(expected: str, value: Id) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    # An id of None or True would be one bucket for everybody.
    if not isinstance(value, (str, bytes)):
        raise TypeError(f"{expected}, not {type(value).__name__}")
    # JSON has no bytes. A lone surrogate stands for a byte that is not UTF-8.
    return value.decode() if isinstance(value, bytes) else value.encode().decode()


def _cost_units(cost: int) -> int:
    if not isinstance(cost, int) or isinstance(cost, bool):
        raise TypeError(f"cost must be an int, not {type(cost).__name__}")
    if not 0 <= cost <= _COST_MAX:
        raise InvalidCost(f"cost must be from 0 to {_COST_MAX}, not {cost}")
    return int(cost)


def _answer(status: int, body: bytes) -> Union[Decision, Refund, None]:
    """Returns the answer in a body, or raises the problem that it describes."""
    try:
        fields = json.loads(body)
    except ValueError:
        fields = None
    if isinstance(fields, dict):
        if "allowed" in fields and ("limit" in fields or "rule" in fields):
            return Decision(
                fields["allowed"],
                fields.get("remaining"),
                # An answer of a rule that allows has no time to wait.
                _seconds(fields.get("retry_after", 0 if fields["allowed"] else None)),
                _seconds(fields.get("reset_after")),
                fields.get("limit"),
                bool(fields.get("degraded", False)),
                fields.get("rule"),
            )
        if "refunded" in fields:
            return Refund(fields["refunded"], fields.get("remaining"), _seconds(fields.get("reset_after")))
        if "reset" in fields:
            return None
        if "title" in fields:
            raise _problem(status, fields)
    text = body[:100].decode("utf-8", "replace")
    raise ServerError(status, "The answer is not one of a Tollway server", f"it begins with {text!r}")


def _problem(status: int, fields: Dict[str, Any]) -> Exception:
    title, detail, kind = str(fields["title"]), str(fields.get("detail", "")), str(fields.get("type", ""))
    if kind == _PROBLEM_TYPE + "missing-selector":
        return SelectorError(str(fields.get("field", "")).partition("selectors.")[2], detail)
    exception = _EXCEPTIONS.get(kind[len(_PROBLEM_TYPE) :]) if kind.startswith(_PROBLEM_TYPE) else None
    return exception(detail) if exception is not None else ServerError(status, title, detail)


def _seconds(value: Optional[float]) -> Optional[float]:
    return None if value is None else float(value)


async def _read_response(reader: asyncio.StreamReader) -> Tuple[int, bytes, bool]:
    """Returns the status and the body of a response, and true if another request may follow on the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, rest = head.partition(b"\r\n")
    version, _, status = line.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not status[:3].isdigit():
        raise HTTPException(f"not an HTTP response: {line[:100]!r}")
    headers = parse_headers(BytesIO(rest))
    keep_alive = version == b"HTTP/1.1" and headers.get("Connection", "").lower() != "close"
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        return int(status[:3]), await _read_chunks(reader), False
    length = headers.get("Content-Length")
    if length is None:
        return int(status[:3]), await reader.read(_BODY_MAX), False
    if not length.isdigit() or int(length) > _BODY_MAX:
        raise HTTPException(f"a body of {length[:100]} bytes")
    return int(status[:3]), await reader.readexactly(int(length)), keep_alive


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Returns a body that a proxy has sent in chunks. A server sends none."""
    body = b""
    while True:
        try:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        except ValueError as error:
            raise HTTPException("the chunks of the body are malformed") from error
        if not 0 < size <= _BODY_MAX - len(body):
            return body
        body += (await reader.readexactly(size + 2))[:-2]


async def _open_streams(
    host: str, port: int, tls: Optional[ssl.SSLContext]
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to the first address of the host that accepts.

    ``asyncio`` would raise one error for all addresses, which no longer tells that they refused.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failed: OSError = socket.gaierror("the host has no IP address")
    for *_, address in found:
        try:
            named = None if tls is None else host
            return await asyncio.open_connection(str(address[0]), port, ssl=tls, server_hostname=named)
        except ssl.SSLError:
            raise
        except OSError as error:
            failed = error
    raise failed


async def _close_streams(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        pass


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("the time of the call is over")
    return left


def _is_readable(fileno: int) -> bool:
    """Returns true if an idle connection has something to read, which can only be its end."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


def _not_connected(address: str, error: BaseException) -> ServerUnreachable:
    """Returns the exception for a connection that could not be opened. Nothing was sent."""
    # A name that cannot be one, such as "a..b", fails when it is encoded.
    if isinstance(error, (socket.gaierror, UnicodeError)):
        return ServerUnreachable(
            address,
            f"the host in {address} cannot be looked up; check its spelling, and the name servers of this machine",
        )
    if isinstance(error, ssl.SSLError):
        return _no_tls(address, error)
    if isinstance(error, ConnectionRefusedError):
        return ServerUnreachable(address, f'no server at {address}; start one with "tollway serve"')
    return ServerUnreachable(
        address, f"{address} is unreachable; check the network between this machine and the server"
    )


def _no_tls(address: str, error: ssl.SSLError) -> ServerUnreachable:
    """Returns the exception for a handshake that failed, or for one that the server ended."""
    return ServerUnreachable(
        address,
        f"no TLS connection to {address}: {error.reason or error}; check the certificates, and that this gate uses TLS",
    )


def _lost(address: str, error: BaseException) -> ServerUnreachable:
    """Returns the exception for a request that was sent and not answered."""
    # A server refuses the certificate of a client after the client's part of the handshake.
    if isinstance(error, ssl.SSLError):
        return _no_tls(address, error)
    was_cut = isinstance(error, (ConnectionError, IncompleteRead))
    if isinstance(error, (HTTPException, asyncio.LimitOverrunError)) and not was_cut:
        return ServerUnreachable(
            address, f"invalid answer from {address}; check that the HTTP gate of a Tollway server listens there"
        )
    return ServerUnreachable(
        address, f"{address} closed the connection before it answered; the charge may have been made"
    )
