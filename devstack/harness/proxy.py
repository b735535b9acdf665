"""Runs a TCP proxy that simulates network faults on demand.

The proxy can cut, delay or stall connections, and answer in place of the server.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from devstack import LOOPBACK

UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
T = TypeVar("T")
_CHUNK = 64 * 1024


@dataclass(eq=False)
class Link:
    writers: list[asyncio.StreamWriter]
    flowing: asyncio.Event
    seen: set[bytes] = field(default_factory=set)

    def cut(self) -> None:
        for writer in self.writers:
            # Close the connection immediately, as the kernel does for a killed server.
            writer.transport.abort()


@dataclass(frozen=True)
class Trap:
    """A trap that cuts the first connection on which the client sends ``after`` and later ``word``.

    Attributes:
        deliver: whether the proxy forwards ``word`` to the server before it cuts the connection.
    """

    word: bytes
    after: bytes
    deliver: bool


class Proxy:
    """A thread-safe proxy that forwards connections from one loopback port to another."""

    def __init__(self, target: str) -> None:
        port = urlsplit(target).port
        assert port is not None
        self._target_port = port
        self._links: set[Link] = set()
        self._trap: Trap | None = None
        self._refusing = False
        self._hanging = False
        self._delay_seconds = 0.0
        self._reply: bytes | None = None
        self.sprung = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, LOOPBACK, 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        # The server's URL with the proxy's port.
        self.url = target.replace(f":{port}/", f":{self.port}/", 1)

    def cut(self) -> None:
        """Reset every connection. New connections work."""
        self._call(self._cut_all)

    def redirect_to(self, port: int) -> None:
        """Reset all existing connections, and forward new connections to ``port``."""
        self._target_port = port
        self.cut()

    def stall(self, *, having: bytes | None = None) -> int:
        """Stop forwarding data on the existing connections, or only on connections on which the
        client has sent ``having``. Return the number of stalled connections.
        """
        return self._call(lambda: self._stop_flow(having))

    def hang(self) -> None:
        """Stop forwarding data on existing and new connections, but keep the connections open."""
        self._hanging = True
        self.stall()

    def delay(self, seconds: float) -> None:
        """Forward all data from clients with a delay of ``seconds``, until ``resume`` is called."""
        self._delay_seconds = seconds

    def answer(self, reply: bytes) -> None:
        """Answer all data from clients with ``reply`` until ``resume`` is called."""
        self._reply = reply
        self.cut()

    def flowing(self, *, having: bytes) -> int:
        """Count the connections that aren't stalled and on which the client has sent ``having``."""
        return self._call(
            lambda: sum(having in link.seen and link.flowing.is_set() for link in self._links)
        )

    def resume(self) -> None:
        self._refusing = self._hanging = False
        self._delay_seconds = 0.0
        self._reply = None
        self._call(self._resume_flow)

    def refuse(self) -> None:
        """Reset all old and new connections through the proxy until ``resume`` is called."""
        self._refusing = True
        self.cut()

    @contextlib.contextmanager
    def misbehaving(self, begin: Callable[["Proxy"], None]) -> Iterator[None]:
        begin(self)
        try:
            yield
        finally:
            self.resume()

    def cut_at(self, word: bytes, *, after: bytes, deliver: bool) -> None:
        self.sprung.clear()
        self._trap = Trap(word, after, deliver)

    def close(self) -> None:
        self._call(self._server.close)
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        self._cut_all()
        self._resume_flow()
        if running := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(running, timeout=5)

    def _cut_all(self) -> None:
        for link in tuple(self._links):
            link.cut()

    def _resume_flow(self) -> None:
        for link in self._links:
            link.flowing.set()

    def _stop_flow(self, having: bytes | None) -> int:
        chosen = [link for link in self._links if having is None or having in link.seen]
        for link in chosen:
            link.flowing.clear()
        return len(chosen)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(LOOPBACK, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        link = Link([writer, back], asyncio.Event())
        if not self._hanging:
            link.flowing.set()
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, reader, back, upstream=True),
                self._pump(link, there, writer, upstream=False),
            )
        finally:
            link.cut()
            self._links.discard(link)

    async def _pump(
        self,
        link: Link,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        upstream: bool,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await link.flowing.wait()
                if upstream and await self._trapped(link, data, writer):
                    break
                if upstream and self._reply is not None:
                    await self._answer_instead(link, self._reply)
                    break
                if upstream:
                    await asyncio.sleep(self._delay_seconds)
                writer.write(data)
                await writer.drain()
        link.cut()

    async def _trapped(self, link: Link, data: bytes, server: asyncio.StreamWriter) -> bool:
        if b"SUBSCRIBE" in data:
            link.seen.add(b"SUBSCRIBE")
        trap = self._trap
        if trap is None:
            return False
        if trap.after in data:
            link.seen.add(trap.after)
        if trap.word not in data or trap.after not in link.seen:
            return False
        self._trap = None
        if trap.deliver:
            # Deliver the data before cutting the connection, so that the server executes a command
            # but the client gets no reply.
            link.flowing.clear()
            server.write(data)
            await server.drain()
            await asyncio.sleep(0.2)
        self.sprung.set()
        return True

    async def _answer_instead(self, link: Link, reply: bytes) -> None:
        client = link.writers[0]
        with contextlib.suppress(OSError):
            client.write(reply)
            await client.drain()
            client.write_eof()
            # Wait before resetting the connection, because a client that is still sending would not
            # receive the response.
            await asyncio.sleep(0.1)

    def _call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self._do(called())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


@contextlib.contextmanager
def open_proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
