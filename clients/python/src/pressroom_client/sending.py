"""Sends an issue of a newsletter once to each person in a list's roster."""

import gzip
import json
import logging
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import idna

from pressroom_client.client import Pressroom
from pressroom_client.errors import (
    AddressUnsupported,
    MailDelayed,
    MailRefused,
    SendingStopped,
)

_log = logging.getLogger("pressroom_client")

_MAX_ATTEMPTS = 5
_MAX_FAILURES_IN_A_ROW = 5
_MAX_PAUSE_SECONDS = 60
_MAX_LABEL_CHARACTERS = 100


@dataclass(frozen=True)
class Recipient:
    """A person in a list's roster.

    Attributes:
        row: the person's row of the roster, with all fields.
    """

    row: Mapping[str, Any]

    @property
    def user_id(self) -> int:
        return int(self.row["user_id"])

    @property
    def address(self) -> str:
        """The address with the domain in ASCII (IDNA), which every mail server accepts."""
        local_part, _, domain = self.row["email"].rpartition("@")
        return f"{local_part}@{idna.encode(domain, uts46=True).decode()}"

    @property
    def unsubscribe_url(self) -> str:
        return str(self.row["list_unsubscribe_header"]).strip("<>")

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the mail to this person must have."""
        return {
            "List-Id": self.row["list_id_header"],
            "List-Unsubscribe": self.row["list_unsubscribe_header"],
            "List-Unsubscribe-Post": self.row["list_unsubscribe_post_header"],
        }


@dataclass
class SendingReport:
    """The numbers of mails that one call of ``send_issue`` sent, skipped and failed to send.

    Attributes:
        skipped: mails to addresses that the mail server can't support.
        failed: mails that the next call tries again.
    """

    sent: int = 0
    skipped: int = 0
    failed: int = 0

    def __str__(self) -> str:
        lines = [f"{self.sent} mails sent"]
        if self.skipped:
            lines.append(
                f"{self.skipped} mails skipped, because the server refuses addresses beyond ASCII"
            )
        return "\n".join(lines)


def read_roster(
    client: Pressroom, list_id: int | str, *, label: str | None = None
) -> Iterator[Recipient]:
    """Export a new roster of a list, and yield the people in it.

    The client's key needs the scope ``delivery``. ``label``: the name of the mailing in Pressroom.
    """
    job = client.wait_for_job(
        client.exports.start(list_id, {"kind": "delivery", "format": "jsonl", "label": label})
    )
    with tempfile.TemporaryFile() as file:
        with client._download_url(str((job["result"] or {})["url"])) as download:
            for chunk in download:
                file.write(chunk)
        file.seek(0)
        # An incomplete file raises an error here, so that nobody is skipped.
        with gzip.open(file) as lines:
            for line in lines:
                yield Recipient(json.loads(line))


def send_issue(
    client: Pressroom,
    list_id: int | str,
    send: Callable[[Recipient], object],
    *,
    log: "str | PathLike[str]",
    max_roster_seconds: float = 900.0,
) -> SendingReport:
    """Send an issue to each person in the list's roster who hasn't got it yet.

    After a crash or a failure, call the function again with the same ``log``. A mail that was being
    sent during a crash is sent again with the same row of the roster. Failures are logged as
    warnings of the logger ``pressroom_client``, without addresses.

    Args:
        send: a function that sends one mail. It raises ``MailRefused`` if the server will never
            accept the mail, ``AddressUnsupported`` if the server can't send to the address at all,
            and ``MailDelayed`` if the server doesn't accept the mail now.
        log: an SQLite file, which records who got the issue. Each issue needs its own file, whose
            name without the suffix becomes the name of the mailing.
        max_roster_seconds: the age at which a new roster replaces the roster, so that people who
            unsubscribe during a long run get no mail.

    Raises ``SendingStopped`` if five mails in a row fail, if another program sends the issue, or if
    the log belongs to another list.
    """
    database = sqlite3.connect(log, isolation_level=None)
    try:
        run = _Run(_SendingLog(database), send)
        label = Path(log).stem[:_MAX_LABEL_CHARACTERS]
        while not run.send_roster(read_roster(client, list_id, label=label), max_roster_seconds):
            pass
    finally:
        database.close()
    if run.report.failed:
        _log.warning(
            "%d mails were not sent. Run the program again later to retry them.",
            run.report.failed,
        )
    return run.report


class _SendingLog:
    """Records who got an issue, and whose mail is being sent."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        # The people whose mail to their present address this run began. No earlier run can have
        # delivered that mail.
        self._new_ids: set[int] = set()
        try:
            # Lock the file, so that two programs never send the same issue.
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute(
                "CREATE TABLE IF NOT EXISTS members (id INTEGER PRIMARY KEY, row TEXT,"
                " sent INTEGER)"
            )
            database.execute("CREATE TABLE IF NOT EXISTS refused (id INTEGER PRIMARY KEY)")
            database.execute("BEGIN EXCLUSIVE")
            database.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise SendingStopped(f"Another program is sending the issue: {error}.") from error
        row = database.execute("SELECT row FROM members LIMIT 1").fetchone()
        self._list_id = None if row is None else _get_list_id(json.loads(row[0]))

    def begin(self, recipient: Recipient) -> Recipient | None:
        """Return the recipient of the mail to send now, or ``None`` if the mail was sent.

        If an earlier run couldn't finish the mail, return its recipient, so that exactly the same
        mail is sent again. A mail to a changed address is a new one.
        """
        list_id = _get_list_id(recipient.row)
        self._list_id = self._list_id or list_id
        if list_id != self._list_id:
            raise SendingStopped("The log belongs to an issue of another list. Use another log.")
        query = "SELECT row, sent FROM members WHERE id = ?"
        stored = self._database.execute(query, [recipient.user_id]).fetchone()
        if stored:
            begun = Recipient(json.loads(stored[0]))
            if stored[1]:
                return None
            if begun.row["email"] == recipient.row["email"]:
                return begun
            self.forget(recipient)
        values = [recipient.user_id, json.dumps(recipient.row)]
        self._database.execute("INSERT INTO members VALUES (?, ?, 0)", values)
        self._new_ids.add(recipient.user_id)
        return recipient

    def finish(self, recipient: Recipient) -> None:
        self._database.execute("UPDATE members SET sent = 1 WHERE id = ?", [recipient.user_id])

    def forget(self, recipient: Recipient) -> None:
        self._database.execute("DELETE FROM members WHERE id = ?", [recipient.user_id])

    def refuse(self, recipient: Recipient, *, has_unclear_attempt: bool) -> bool:
        """Return whether an earlier mail to the person was refused too.

        Forget the mail, unless an earlier attempt may have delivered it. The next run then sends
        exactly the same mail again.
        """
        if recipient.user_id in self._new_ids and not has_unclear_attempt:
            self.forget(recipient)
        statement = "INSERT OR IGNORE INTO refused VALUES (?)"
        return self._database.execute(statement, [recipient.user_id]).rowcount == 0


def _get_list_id(row: Mapping[str, Any]) -> str:
    """Return the list's permanent id from the row's URL ``…/subscriptions/{list_id}/delete``."""
    return urlsplit(str(row["one_click_url"])).path.split("/")[-2]


@dataclass
class _Run:
    log: _SendingLog
    send: Callable[[Recipient], object]
    report: SendingReport = field(default_factory=SendingReport)
    _tried: set[int] = field(default_factory=set)
    _failures_in_a_row: int = 0

    def send_roster(self, roster: Iterator[Recipient], max_seconds: float) -> bool:
        """Send to a new roster. Return false if the roster got too old before its end."""
        started = None
        self._failures_in_a_row = 0
        for person in roster:
            # The export of a large list can take longer than the roster may be used.
            started = started or time.monotonic()
            recipient = None if person.user_id in self._tried else self.log.begin(person)
            if recipient is None:
                continue
            self._tried.add(recipient.user_id)
            self._send_mail(recipient)
            if self._failures_in_a_row == _MAX_FAILURES_IN_A_ROW:
                raise SendingStopped(
                    "The last mails all failed. Find the cause, and run the program again."
                )
            if time.monotonic() - started > max_seconds:
                return False
        return True

    def _send_mail(self, recipient: Recipient) -> None:
        errors = _attempt(self.send, recipient)
        error = errors[-1]
        if error is None:
            self.log.finish(recipient)
            self.report.sent += 1
            self._failures_in_a_row = 0
            return
        _log.warning("user %d: %s", recipient.user_id, error)
        if isinstance(error, AddressUnsupported):
            # Don't try again.
            self.log.finish(recipient)
            self.report.skipped += 1
            return
        self.report.failed += 1
        # Addresses that were refused before don't stop another run before the rest of the list.
        was_refused = isinstance(error, MailRefused) and self.log.refuse(
            recipient, has_unclear_attempt=len(errors) > 1
        )
        if not was_refused:
            self._failures_in_a_row += 1


def _attempt(
    send: Callable[[Recipient], object], recipient: Recipient
) -> list[MailRefused | MailDelayed | None]:
    """Send one mail, with retries. Return the reason why each attempt failed, or ``None``."""
    errors: list[MailRefused | MailDelayed | None] = []
    for number in range(_MAX_ATTEMPTS):
        error = _send_once(send, recipient)
        errors.append(error)
        if not isinstance(error, MailDelayed) or number + 1 == _MAX_ATTEMPTS:
            break
        # Some servers ask for a pause until a date. Ignore the date.
        delay = str(error.retry_after)
        time.sleep(min(int(delay) if delay.isdecimal() else 2**number, _MAX_PAUSE_SECONDS))
    return errors


def _send_once(
    send: Callable[[Recipient], object], recipient: Recipient
) -> MailRefused | MailDelayed | None:
    try:
        send(recipient)
    except (MailRefused, MailDelayed) as error:
        return error
    return None
