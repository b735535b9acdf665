"""How many mails strangers can have sent, by mailbox, domain, list and network of the stranger.

The counts are rows, so that no loss of Redis lets a flood through, and their windows are those of
the database's clock. A row is named by an HMAC, so the table tells nothing about people. A row is
locked from its count to the commit. All transactions count in one order, so that no two wait for
each other.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from core.keyring import Keyring
from core.logging import get_logger
from core.settings import Settings
from services.people import email_addresses
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_PURPOSE = "mail-count"
# The smallest networks that a provider gives to one customer, or to a few.
_PREFIXES = {4: 24, 6: 64}
_WINDOW_BYTES = 8

# A window begins with its first mail. No row is returned when the window is full.
_COUNT = text("""
    INSERT INTO mail_counts AS counted (digest, mails, ends_at)
    SELECT :digest, 1, now() + make_interval(secs => :window) WHERE :bound > 0
    ON CONFLICT (digest) DO UPDATE SET
        mails = CASE WHEN counted.ends_at > now() THEN counted.mails + 1 ELSE 1 END,
        ends_at = CASE WHEN counted.ends_at > now() THEN counted.ends_at ELSE excluded.ends_at END
    WHERE counted.ends_at <= now() OR counted.mails < :bound
    RETURNING mails
""")


@dataclass(frozen=True)
class MailBound:
    """One limit that a mail counts against, such as that of its mailbox."""

    name: str
    limits: str
    digest: bytes


class _Full(Exception):
    """The bound that is reached."""


def source_digest(keyring: Keyring, ip: str | None) -> bytes | None:
    """What the mails of a stranger's network are counted under; ``None`` without an IP address."""
    try:
        address = ipaddress.ip_address(ip or "")
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    network = ipaddress.ip_network(f"{address}/{_PREFIXES[address.version]}", strict=False)
    return _digest(keyring, "source", str(network))


def of(
    settings: Settings,
    keyring: Keyring,
    source: bytes | None,
    *,
    email: str | None,
    list_id: int | None = None,
) -> Sequence[MailBound]:
    """The bounds of one mail. The narrow ones come first: a stranger whom one of these stops has
    taken nothing of what all share.

    Args:
        source: as ``source_digest`` made it.
        email: ``None`` for the address of an account, which has limits of its own.
    """
    found = []
    if source is not None:
        found.append(MailBound("source", settings.mail_limit_source, source))
    mailbox = None if email is None else email_addresses.mailbox_of(email)
    if mailbox is not None:
        digest = _digest(keyring, "mailbox", mailbox)
        found.append(MailBound("mailbox", settings.mail_limit_mailbox, digest))
    if list_id is not None:
        digest = _digest(keyring, "list", str(list_id))
        found.append(MailBound("list", settings.mail_limit_list, digest))
    if mailbox is not None:
        digest = _digest(keyring, "domain", mailbox.rpartition("@")[2])
        found.append(MailBound("domain", settings.mail_limit_domain, digest))
    return found


def admit(uow: UnitOfWork, bounds: Sequence[MailBound]) -> bool:
    """Count a mail against all its bounds; ``False``, and nothing counted, if one is reached.

    Call it as late as can be in the transaction that orders the mail: its rows are locked then.
    """
    try:
        with uow.session.begin_nested():
            for bound in bounds:
                _count(uow, bound)
    except _Full as full:
        log.warning("mail.not_sent", bound=str(full))
        return False
    return True


def _count(uow: UnitOfWork, bound: MailBound) -> None:
    # Imported here, with the libraries of Redis and of limits: most processes that import the
    # module send no such mail.
    from storage.redis.rate_counters import parse_limits

    for limit in parse_limits(bound.limits):
        window = limit.get_expiry()
        # The limits of one bound have windows, and so counts, of their own.
        digest = bound.digest + window.to_bytes(_WINDOW_BYTES, "big")
        values = {"digest": digest, "window": window, "bound": limit.amount}
        if uow.session.scalar(_COUNT, values) is None:
            raise _Full(bound.name)


def _digest(keyring: Keyring, kind: str, name: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(f"{kind}:{name}".encode())
