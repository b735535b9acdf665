"""Runs the programs of docs/journeys.md as a reader does, and stops them in the middle of a run."""

import asyncio
import re
import smtplib
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from core.scopes import Scope
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.stack import Owner, Stack, plain_client
from tests.support.documents import markdown
from tests.support.lists.watched_segments import WatchedSegment
from tests.support.people.limited_keys import create_limited_key

PAGE = markdown.ROOT / "docs" / "journeys.md"
_FILE_NAME = re.compile(r"# (\w+\.py)\n")
_STALL_SECONDS = 60


def save_programs(folder: Path) -> None:
    for block in markdown.blocks(PAGE):
        if block.is_run and block.language == "python":
            name = _FILE_NAME.match(block.text)
            assert name is not None, block
            (folder / name[1]).write_text(block.text)


@dataclass
class StallingProxy:
    """A mail server that passes mails to the sandbox, and doesn't reply at a chosen point.

    Attributes:
        stalls_at: "MAIL" stalls before a mail is received, and "DATA" after it was passed on.
        mail_number: the number of the mail at which the server stalls, counted from 1.
    """

    sandbox_port: int
    stalls_at: str
    mail_number: int
    stalled: threading.Event = field(default_factory=threading.Event)
    _mails: int = 0

    async def handle_MAIL(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self._mails += 1
        await self._stall("MAIL")
        envelope.mail_from = address
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        await asyncio.to_thread(self._pass_on, envelope)
        await self._stall("DATA")
        return "250 OK"

    def _pass_on(self, envelope: Envelope) -> None:
        assert envelope.mail_from is not None
        assert envelope.content is not None
        with smtplib.SMTP(LOOPBACK, self.sandbox_port) as sandbox:
            sandbox.sendmail(envelope.mail_from, envelope.rcpt_tos, envelope.content)

    async def _stall(self, point: str) -> None:
        if (point, self._mails) == (self.stalls_at, self.mail_number):
            self.stalled.set()
            await asyncio.Event().wait()


@dataclass
class JourneyPrograms:
    """The directory of a reader who has saved the programs for a watched segment."""

    stack: Stack
    folder: Path
    client_folder: Path
    segment: WatchedSegment
    key: str

    def run(self, name: str = "welcome") -> None:
        """Run a program until it ends, with the sandbox as its mail server."""
        completed = subprocess.run(
            [sys.executable, f"{name}.py"],
            check=False,
            cwd=self.folder,
            env=self._build_environment(self._mail_url),
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stderr

    def kill(self, stalls_at: str, mail_number: int = 1) -> None:
        """Start the program welcome.py, and kill it while the mail server doesn't reply."""
        sandbox_port = int(self._mail_url.rpartition(":")[2])
        proxy = StallingProxy(sandbox_port, stalls_at, mail_number)
        server = Controller(proxy, hostname=LOOPBACK, port=free_port())
        server.start()
        program = subprocess.Popen(
            [sys.executable, "welcome.py"],
            cwd=self.folder,
            env=self._build_environment(f"smtp://{LOOPBACK}:{server.port}"),
        )
        try:
            assert proxy.stalled.wait(_STALL_SECONDS)
        finally:
            program.kill()
            program.wait()
            server.stop()

    def move_due_times(self, **duration: float) -> None:
        """Pretend that the program planned all its mails earlier."""
        seconds = timedelta(**duration).total_seconds()
        with closing(sqlite3.connect(self.folder / "welcome.sqlite3")) as state, state:
            state.execute("UPDATE mails SET due = due - ?", [seconds])

    def list_mails(self, to: str) -> list[dict[str, Any]]:
        """Return the mails in the sandbox, oldest first."""
        with plain_client() as client:
            reply = client.get(f"{self.stack.sandbox_url}/mail/messages", params={"to": to})
        return list(reversed(reply.raise_for_status().json()))

    @property
    def _mail_url(self) -> str:
        return self.stack.environment["PRESSROOM_MAIL_URL"]

    def _build_environment(self, mail_url: str) -> dict[str, str]:
        return {
            **self.stack.environment,
            "HOME": str(self.folder),
            "PYTHONPATH": str(self.client_folder),
            "PRESSROOM_URL": self.stack.api_url,
            "PRESSROOM_KEY": self.key,
            "LIST": str(self.segment.list_id),
            "SEGMENT": str(self.segment.id),
            "SMTP_URL": mail_url,
        }


def prepare_programs(
    folder: Path, client_folder: Path, owner: Owner, segment: WatchedSegment
) -> JourneyPrograms:
    """Save the programs, and create a key for them as an owner does."""
    save_programs(folder)
    more_scopes = (Scope.SUBSCRIPTION_READ,)
    key = create_limited_key(segment.stack, owner, segment.list_id, more_scopes=more_scopes)
    return JourneyPrograms(segment.stack, folder, client_folder, segment, key["key"])
