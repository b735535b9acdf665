"""Runs SMTP servers: the sandbox's, and one with replies that a test chooses."""

import asyncio
import contextlib
import itertools
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from core.settings.mail_server import MailSender, MailServer
from devstack import LOOPBACK
from devstack.sandbox.mailbox import Mailbox, run_smtp_server
from integrations.mail.port import Mail
from integrations.mail.smtp import SmtpMailer

SENDER = MailSender.parse("Press & Röom <news@pressroom.example>")
_numbers = itertools.count()


def new_address(local_part: str = "reader") -> str:
    return f"{local_part}@reader{next(_numbers)}.example.com"


def build_mail(
    to: str | None = None,
    *,
    subject: str = "Please confirm",
    text: str = "Hello",
    html: str = "<p>Hello",
    headers: Mapping[str, str] | None = None,
) -> Mail:
    return Mail(to or new_address(), subject, text, html, headers or {})


def build_mailer(url: str, *, timeout: float = 10.0) -> SmtpMailer:
    return SmtpMailer(MailServer.parse(url), SENDER, timeout)


@dataclass
class Sandbox:
    port: int
    mailbox: Mailbox

    @property
    def url(self) -> str:
        return f"smtp://{LOOPBACK}:{self.port}"


@contextlib.contextmanager
def running_sandbox() -> Iterator[Sandbox]:
    with socket.create_server((LOOPBACK, 0)) as probe:
        sandbox = Sandbox(probe.getsockname()[1], Mailbox())
    is_up, stop = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with run_smtp_server(sandbox.mailbox, sandbox.port):
            is_up.set()
            await stop.wait()

    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1) as threads, asyncio.Runner(loop_factory=lambda: loop) as runner:
        served = threads.submit(runner.run, serve())
        assert is_up.wait(10)
        yield sandbox
        loop.call_soon_threadsafe(stop.set)
        served.result(10)


@dataclass
class ScriptedSmtpServer:
    """An SMTP server whose replies a test chooses. The default replies accept every mail.

    Attributes:
        greeting: the reply to a new connection.
        answers: maps SMTP commands to replies. The key `END` maps to the reply after a whole
            message. If the reply is None, the server closes the connection.
        extensions: the extensions in the reply to `EHLO`.
        silent_after: the command after which the server doesn't reply any more.
        received_commands: the commands that the server has received, with their arguments.
        context: the TLS context for `STARTTLS`.
    """

    port: int = 0
    greeting: str | None = "220 ready"
    answers: dict[str, str | None] = field(default_factory=dict)
    extensions: tuple[str, ...] = ()
    silent_after: str = ""
    received_commands: list[str] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    context: ssl.SSLContext | None = None

    def answer(self, verb: str) -> str | None:
        default_answers = {"QUIT": "221 bye", "DATA": "354 go on", "STARTTLS": "220 go on"}
        if verb == "EHLO" and verb not in self.answers:
            lines = ["talker", *self.extensions]
            return "\r\n".join([*(f"250-{each}" for each in lines[:-1]), f"250 {lines[-1]}"])
        return self.answers.get(verb, default_answers.get(verb, "250 OK"))


class _Conversation(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.talker: ScriptedSmtpServer = self.server.talker  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            self._say(self.talker.greeting)
            while self._handle_command():
                pass

    def _handle_command(self) -> bool:
        """Handle the next command, and return whether the connection stays open."""
        line = self._read_line()
        if not line:
            return False
        text = line.decode().strip()
        # Python versions differ in the case of these words.
        command = re.sub(r"(?i)^\w+( (from|to):)?", lambda words: words[0].upper(), text)
        self.talker.received_commands.append(command)
        verb = command.split(" ", 1)[0]
        if verb == self.talker.silent_after:
            time.sleep(5)
            return False
        answered = self._say(self.talker.answer(verb))
        if verb == "STARTTLS" and self.talker.context is not None:
            self.request: Any = self.talker.context.wrap_socket(self.request, server_side=True)
        if verb == "DATA" and answered and answered.startswith("354"):
            answered = self._read_message()
        return answered is not None and verb != "QUIT"

    def _read_message(self) -> str | None:
        lines = []
        while (line := self._read_line()) != b".\r\n":
            if not line:
                return None
            lines.append(line[1:] if line.startswith(b"..") else line)
        self.talker.messages.append(b"".join(lines))
        return self._say(self.talker.answer("END"))

    def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            byte = self.request.recv(1)
            if not byte:
                return b""
            line += byte
        return line

    def _say(self, answer: str | None) -> str | None:
        if answer is not None:
            self.request.sendall(answer.encode() + b"\r\n")
        else:
            self.request.shutdown(socket.SHUT_RDWR)
        return answer


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True


@contextlib.contextmanager
def running_scripted_server(
    talker: ScriptedSmtpServer, implicit_tls: ssl.SSLContext | None = None
) -> Iterator[ScriptedSmtpServer]:
    with _Server((LOOPBACK, 0), _Conversation) as server:
        server.talker = talker  # type: ignore[attr-defined]
        if implicit_tls is not None:
            server.socket = implicit_tls.wrap_socket(server.socket, server_side=True)
        talker.port = server.server_address[1]
        # The server checks every 0.01 s whether it must stop. With the default interval of 0.5 s,
        # the server would stop later, and each test would take longer.
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield talker
        finally:
            server.shutdown()
