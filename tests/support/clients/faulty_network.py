"""A proxy between a client and the API, which causes the faults that the client's URL names.

The base URL ``<url>/<name>.<fault>.<fault>`` makes the first call meet the first fault, and the
second call meet the second fault. The proxy forwards later calls to the API without a fault. A GET
request to ``/seen`` below the base URL lists all calls.
"""

import http.client
import json
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from devstack import LOOPBACK
from tests.support.http.servers import QuietHandler, http_server, running_server

# Maps the name of each fault to the status of the response, and to the seconds in the response's
# Retry-After header.
ERRORS = {"429": (429, "0"), "503": (503, "0"), "wait": (429, "1"), "hour": (429, "3600")}
# The API handles the call, but its response is lost.
LOST = "lost"
# The response, a stream of events, ends after its first event.
CUT = "cut"

NO_HEADERS: Mapping[str, str] = {}

_SeenCall = dict[str, str | None]


class _Handler(QuietHandler):
    upstream_port: int
    seen: defaultdict[str, list[_SeenCall]]

    def do_GET(self) -> None:
        script, _, path = self.path.removeprefix("/").partition("/")
        if path == "seen":
            self._answer(200, json.dumps(self.seen[script]).encode())
        else:
            self._meet_faults(script, f"/{path}")

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 # names of http.server

    def _meet_faults(self, script: str, path: str) -> None:
        body = self._body()
        faults = script.split(".")[1:]
        earlier = len(self.seen[script])
        self.seen[script].append(
            {
                "path": path,
                "key": self.headers["Idempotency-Key"],
                "last_event_id": self.headers["Last-Event-ID"],
            }
        )
        fault = faults[earlier] if earlier < len(faults) else ""
        if fault in ERRORS:
            status, seconds = ERRORS[fault]
            problem = {"status": status, "code": "rate.limited", "detail": "Too many calls."}
            self._answer(status, json.dumps(problem).encode(), {"Retry-After": seconds})
        else:
            self._forward(path, body, fault)

    def _body(self) -> bytes:
        if self.headers["Transfer-Encoding"] == "chunked":
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)
        return self.read_body()

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str] = NO_HEADERS) -> None:
        self.reply(status, content, {"Content-Type": "application/problem+json", **headers})

    def _forward(self, path: str, body: bytes, fault: str) -> None:
        upstream = http.client.HTTPConnection(LOOPBACK, self.upstream_port, timeout=60)
        hop_by_hop = {"host", "connection", "transfer-encoding", "content-length"}
        headers = {k: v for k, v in self.headers.items() if k.lower() not in hop_by_hop}
        upstream.request(self.command, path, body=body or None, headers=headers)
        answer = upstream.getresponse()
        if fault == LOST:
            answer.read()
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        # Send no Content-Length, so that the end of the connection ends the response.
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        self.end_headers()
        while chunk := answer.read1(65536):
            self.wfile.write(chunk)
            self.wfile.flush()
            if fault == CUT and b"\n\n" in chunk:
                break
        upstream.close()


@contextmanager
def faulty_network(api_port: int) -> Iterator[str]:
    """Run the proxy for the API on this port, and yield the proxy's URL."""
    handler = type("Handler", (_Handler,), {"upstream_port": api_port, "seen": defaultdict(list)})
    with running_server(http_server(handler)) as url:
        yield url
