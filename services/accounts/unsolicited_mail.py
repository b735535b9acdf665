"""Limits the mails that strangers can have sent to any address.

Mails are counted per mailbox, domain, list and network of the request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text

from core.keyring import Keyring
from core.logging import get_logger
from core.networks import network_of
from core.settings import Settings
from services.accounts import email_addresses
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

_PURPOSE = "mail-count"
# Internet providers assign IPv4 networks of this size to a few customers.
_IPV4_PREFIX = 24
_WINDOW_BYTES = 8
_MAX_REMINDERS = "1/day"
# Counts a mail. A window begins with its first mail. No row is returned if the window is full.
_COUNT_MAIL = text("""
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
    """A limit that a mail counts against, such as the limit of its mailbox.

    Attributes:
        limits: the setting with the limits, such as ``5/hour``.
        digest: identifies the mailbox, the domain, the list or the network.
    """

    name: str
    limits: str
    digest: bytes


class _BoundReached(Exception):
    """A mail exceeds a bound. The message is the name of the bound."""


def source_digest(keyring: Keyring, ip: str | None) -> bytes | None:
    """Return the digest of a client's network, or ``None`` without an IP address.

    Mails that a stranger requests are counted under this digest.
    """
    network = network_of(ip, ipv4_prefix=_IPV4_PREFIX)
    return None if network is None else _digest(keyring, "source", str(network))


def choose_bounds(
    settings: Settings, source: bytes | None, *, email: str | None, list_id: int | None = None
) -> Sequence[MailBound]:
    """Return the bounds of one mail, the narrowest bound first.

    A mail that exceeds a narrow bound must not count against the bounds that strangers share.

    Args:
        source: the result of ``source_digest``.
        email: the recipient, or ``None`` for the owner of an account, who has separate limits.
    """
    mailbox = None if email is None else email_addresses.derive_mailbox(email)
    limits_by_subject = (
        ("mailbox", settings.mail_limit_mailbox, mailbox),
        ("list", settings.mail_limit_list, list_id),
        ("domain", settings.mail_limit_domain, mailbox and mailbox.rpartition("@")[2]),
    )
    bounds = [] if source is None else [MailBound("source", settings.mail_limit_source, source)]
    for name, limits, subject in limits_by_subject:
        if subject is not None:
            bounds.append(MailBound(name, limits, _digest(settings.keyring, name, str(subject))))
    return bounds


def choose_reminder_bounds(
    settings: Settings, source: bytes | None, *, email: str, list_id: int
) -> Sequence[MailBound]:
    """Return the bounds of a reminder, including one reminder per mailbox and day."""
    digest = _digest(settings.keyring, "reminder", email_addresses.derive_mailbox(email))
    mail_bounds = choose_bounds(settings, source, email=email, list_id=list_id)
    return [MailBound("reminder", _MAX_REMINDERS, digest), *mail_bounds]


def admit_mail(uow: UnitOfWork, bounds: Sequence[MailBound]) -> bool:
    """Count a mail against its bounds, or return false if a bound has been reached.

    A rejected mail isn't counted. Call this function late in the transaction that enqueues the
    mail, because the counts are locked until the transaction ends.
    """
    try:
        with uow.session.begin_nested():
            for bound in bounds:
                _count_mail(uow, bound)
    except _BoundReached as reached:
        log.warning("mail.not_sent", bound=str(reached))
        return False
    return True


def _count_mail(uow: UnitOfWork, bound: MailBound) -> None:
    # Import the Redis libraries here, because most processes that import this module don't send
    # mails for strangers.
    from storage.redis.rate_counters import parse_limits

    for limit in parse_limits(bound.limits):
        window = limit.get_expiry()
        # A bound with several limits has a separate count per window.
        digest = bound.digest + window.to_bytes(_WINDOW_BYTES, "big")
        values = {"digest": digest, "window": window, "bound": limit.amount}
        if uow.session.scalar(_COUNT_MAIL, values) is None:
            raise _BoundReached(bound.name)


def _digest(keyring: Keyring, kind: str, name: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(f"{kind}:{name}".encode())
