"""A blocking HTTP/1.1 connection to a webhook receiver, which may be slow, broken or hostile.

The HTTP library in ``integrations.http_client`` takes five times as much processor time per request
as this connection. The connection follows no redirects, stores no cookies, requests no compression,
and ignores proxy settings in environment variables.
"""

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass

import h11

from integrations.http_client import load_authorities
from integrations.receivers.addresses import IpAddress
from integrations.receivers.destinations import Destination

_MAX_CONNECT_SECONDS = 5.0
# The maximum number of IP addresses to try per host.
_MAX_ADDRESSES_TRIED = 3
_MAX_HEAD_BYTES = 100 * 1024
# The maximum number of informational responses, such as 103, before the response.
_MAX_INFORMATIONAL_RESPONSES = 10
_CHUNK_BYTES = 64 * 1024
_FIXED_HEADERS = {"Accept": "*/*", "Accept-Encoding": "identity"}


class PostFailed(Exception):
    """The owner of the webhook endpoint sees the exception's text, which contains no URL."""


class NotConnected(PostFailed):
    """Raised if the connection fails before any part of the request was sent."""


class ConnectionLost(PostFailed):
    """Raised if the connection breaks before the response is complete, or the response isn't HTTP.

    The receiver may have processed the request.
    """


class _ResponsesExcessive(Exception):
    pass


@dataclass(frozen=True)
class Response:
    """Contains the beginning of the body, still compressed if the receiver compressed it."""

    status: int
    retry_after: str | None
    body: bytes


# Optimization: blocking connections to webhook receivers (decision 17).
class ReceiverConnection:
    """A connection to one host, which stays open between requests.

    Hosts that share an IP address need separate connections, because the connection checks the
    certificate of only one host.
    """

    def __init__(self, destination: Destination, *, max_body_bytes: int) -> None:
        self._location = destination.location
        self._addresses = list(destination.addresses[:_MAX_ADDRESSES_TRIED])
        self._max_body_bytes = max_body_bytes
        self._socket: socket.socket | None = None
        self._protocol = h11.Connection(h11.CLIENT)

    def post(self, content: bytes, headers: Mapping[str, str], *, ends_at: float) -> Response:
        """Raise ``PostFailed`` after an error or at ``ends_at``, a ``time.monotonic()`` value."""
        if self._socket is None or _is_ended(self._socket):
            self._connect(ends_at)
        try:
            self._send(self._build_request(content, headers), ends_at)
            response = self._receive_response(ends_at)
            self._prepare_next_request()
        except TimeoutError:
            self.close()
            raise PostFailed("the time limit is over") from None
        except _ResponsesExcessive:
            self.close()
            raise PostFailed(
                f"more than {_MAX_INFORMATIONAL_RESPONSES} informational responses preceded it"
            ) from None
        except OSError:
            self.close()
            raise ConnectionLost("the connection was closed") from None
        except h11.RemoteProtocolError:
            self.close()
            raise ConnectionLost("the response is not valid HTTP") from None
        return response

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self, ends_at: float) -> None:
        """Connect to the first IP address that accepts a connection."""
        self.close()
        while True:
            try:
                self._socket = self._open_socket(self._addresses[0], ends_at)
                break
            except OSError as failure:
                if len(self._addresses) == 1 or time.monotonic() >= ends_at:
                    raise NotConnected(_describe_connect_failure(failure)) from None
                del self._addresses[0]
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)

    def _open_socket(self, address: IpAddress, ends_at: float) -> socket.socket:
        location = self._location
        seconds = min(_MAX_CONNECT_SECONDS, _seconds_until(ends_at))
        plain = socket.create_connection((str(address), location.port), seconds)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(plain.close)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened = plain
            if location.scheme == "https":
                plain.settimeout(min(_MAX_CONNECT_SECONDS, _seconds_until(ends_at)))
                opened = load_authorities().wrap_socket(plain, server_hostname=location.host)
            on_failure.pop_all()
        return opened

    def _build_request(self, content: bytes, headers: Mapping[str, str]) -> bytes:
        own_headers = {"Host": self._location.authority, "Content-Length": str(len(content))}
        request = h11.Request(
            method="POST",
            target=self._location.path,
            headers=list({**own_headers, **_FIXED_HEADERS, **headers}.items()),
        )
        parts = [self._protocol.send(event) for event in (request, h11.Data(content))]
        self._protocol.send(h11.EndOfMessage())
        return b"".join(part for part in parts if part)

    def _send(self, data: bytes, ends_at: float) -> None:
        assert self._socket is not None
        view = memoryview(data)
        try:
            while view:
                self._socket.settimeout(_seconds_until(ends_at))
                view = view[self._socket.send(view) :]
        except TimeoutError:
            raise
        except OSError:
            # The receiver may have responded before reading the whole request. If there is no
            # response, ``_receive_response`` raises an exception.
            return

    def _receive_response(self, ends_at: float) -> Response:
        """Receive a response.

        Raises ``OSError``, ``h11.RemoteProtocolError`` or ``_ResponsesExcessive``.
        """
        assert self._socket is not None
        body = bytearray()
        head: h11.Response | None = None
        informational_responses = 0
        while len(body) <= self._max_body_bytes:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                # Limit each wait to the remaining time, because a receiver can send byte by byte.
                self._socket.settimeout(_seconds_until(ends_at))
                self._protocol.receive_data(self._socket.recv(_CHUNK_BYTES))
            elif isinstance(event, h11.InformationalResponse):
                informational_responses += 1
                if informational_responses > _MAX_INFORMATIONAL_RESPONSES:
                    raise _ResponsesExcessive
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
        assert head is not None
        retry_after = next((value for name, value in head.headers if name == b"retry-after"), None)
        return Response(
            status=head.status_code,
            retry_after=None if retry_after is None else retry_after.decode("latin-1"),
            body=bytes(body[: self._max_body_bytes]),
        )

    def _prepare_next_request(self) -> None:
        protocol = self._protocol
        has_ended = protocol.our_state is h11.DONE and protocol.their_state is h11.DONE
        # Surplus data after the response would be mistaken for the response to the next request.
        if has_ended and not protocol.trailing_data[0]:
            protocol.start_next_cycle()
        else:
            self.close()


def _describe_connect_failure(failure: OSError) -> str:
    match failure:
        case TimeoutError():
            return "the server does not respond"
        case ssl.SSLCertVerificationError():
            return "the server's certificate is not valid"
        case ssl.SSLError():
            return "the TLS handshake failed"
        case ConnectionRefusedError():
            return "the server refused the connection"
    return "the server is unreachable"


def _is_ended(connection: socket.socket) -> bool:
    """Return whether the receiver has ended an idle connection, or sent unexpected data."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _seconds_until(ends_at: float) -> float:
    """Raise ``TimeoutError`` if no time is left."""
    seconds = ends_at - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
