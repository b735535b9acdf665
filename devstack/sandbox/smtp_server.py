"""The sandbox's SMTP server: takes every mail but that to a few recipients, which goes wrong."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiosmtpd.smtp import SMTP, Envelope, Session

from devstack import LOOPBACK
from devstack.sandbox.mailbox import Mailbox, parse

MAX_MAIL_BYTES = 5 * 1024 * 1024
_LATER_ATTEMPTS = 2
_SLOW_SECONDS = 60.0  # longer than Pressroom waits
_MAX_COUNTED_MAILS = 1000


class SmtpHandler:
    """What the server does with a mail. The methods' names are aiosmtpd's."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._attempts: Counter[tuple[str, str]] = Counter()

    async def handle_RCPT(  # noqa: N802
        self,
        server: SMTP,
        session: Session,
        envelope: Envelope,
        address: str,
        options: list[str],
    ) -> str:
        if _local_part(address) == "reject":
            return "550 5.1.1 There is no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        content = envelope.content
        assert isinstance(content, bytes)  # a str only with decode_data
        if any(_local_part(each) == "slow" for each in envelope.rcpt_tos):
            await asyncio.sleep(_SLOW_SECONDS)
        late = [each.lower() for each in envelope.rcpt_tos if _local_part(each) == "later"]
        if late:
            mail = (late[0], str(parse(content)["Subject"]))
            self._attempts[mail] += 1
            if self._attempts[mail] <= _LATER_ATTEMPTS:
                if len(self._attempts) > _MAX_COUNTED_MAILS:
                    self._attempts.clear()
                return "451 4.7.1 Try again later"
            del self._attempts[mail]
        self._mailbox.keep(tuple(envelope.rcpt_tos), content)
        return "250 OK"


def _local_part(address: str) -> str:
    """The part before the `@` or a plus, in small letters; it decides what happens to the mail."""
    return address.rpartition("@")[0].partition("+")[0].lower()


@asynccontextmanager
async def smtp_server(mailbox: Mailbox, port: int) -> AsyncIterator[None]:
    """Take mail on a loopback port, in the running event loop."""
    loop = asyncio.get_running_loop()
    protocol = partial(
        SMTP,
        SmtpHandler(mailbox),
        data_size_limit=MAX_MAIL_BYTES,
        enable_SMTPUTF8=True,
        # Without a host name it would look up the machine's, which can take long.
        hostname="sandbox.localhost",
        ident="Pressroom sandbox",
        loop=loop,
    )
    server = await loop.create_server(protocol, LOOPBACK, port)
    try:
        yield
    finally:
        # Not awaited: a client that keeps its connection must not hold up the end.
        server.close()
