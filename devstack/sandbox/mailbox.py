"""The mails that the sandbox has taken, in memory alone, newest last."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default as policy
from itertools import count

MAX_MAILS = 500
MAX_MAILBOX_BYTES = 32 * 1024 * 1024


def parse(raw: bytes) -> EmailMessage:
    return message_from_bytes(raw, policy=policy)


@dataclass(frozen=True)
class StoredMail:
    """A mail as it came. It is parsed anew each time: that is rare, and parsed it is large."""

    id: int
    received_at: datetime
    recipients: tuple[str, ...]
    subject: str
    raw: bytes

    @property
    def to(self) -> str:
        return ", ".join(self.recipients)

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [(name, str(value)) for name, value in parse(self.raw).items()]

    @property
    def text(self) -> str | None:
        return self._part("plain")

    @property
    def html(self) -> str | None:
        return self._part("html")

    def _part(self, kind: str) -> str | None:
        part = parse(self.raw).get_body((kind,))
        if part is None:
            return None
        try:
            text = str(part.get_content())
        except LookupError:
            # The character set is unknown; its ASCII letters can be read even so.
            part.set_param("charset", "ascii")
            text = str(part.get_content())
        return text.replace("\r\n", "\n")


class Mailbox:
    """Keeps the last mails: at most ``MAX_MAILS``, and ``MAX_MAILBOX_BYTES`` together."""

    def __init__(self) -> None:
        self._mails: deque[StoredMail] = deque()
        self._ids = count(1)

    def keep(self, recipients: tuple[str, ...], raw: bytes) -> None:
        subject = str(parse(raw)["Subject"] or "")
        mail = StoredMail(next(self._ids), datetime.now(UTC), recipients, subject, raw)
        self._mails.append(mail)
        while (
            len(self._mails) > MAX_MAILS or sum(len(each.raw) for each in self) > MAX_MAILBOX_BYTES
        ):
            self._mails.popleft()

    def __iter__(self) -> Iterator[StoredMail]:
        return iter(self._mails)

    def newest_first(self, to: str = "") -> list[StoredMail]:
        """The mails to one address, in any letter case; without an address, all mails."""
        wanted, newest_first = to.strip().lower(), reversed(self._mails)
        if not wanted:
            return list(newest_first)
        return [each for each in newest_first if wanted in map(str.lower, each.recipients)]

    def find(self, mail_id: int) -> StoredMail | None:
        return next((each for each in self._mails if each.id == mail_id), None)

    def remove(self, to: str = "") -> int:
        """Forget the mails to one address, or all; return how many there were."""
        gone = {each.id for each in self.newest_first(to)}
        self._mails = deque(each for each in self._mails if each.id not in gone)
        return len(gone)
