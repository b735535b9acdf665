"""Enforces rate limits for mails that strangers can request for any address.

The rate limits apply per recipient mailbox, recipient domain, mailing list, and requesting network.
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
# Mail requests are counted per IPv4 network with this prefix length, because one person may use
# several IP addresses.
_IPV4_PREFIX = 24
_WINDOW_BYTES = 8
_MAX_REMINDERS = "1/day"
# Counts a mail, unless the rate limit has been reached. The time window of a mail's rate limit
# begins with the first mail in the window.
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
    """A rate limit such as ``5/hour``, and the digest of the mailbox, domain, list or network."""

    name: str
    limits: str
    digest: bytes


class _BoundReached(Exception):
    """A mail exceeds the rate limit that the message names."""


def source_digest(keyring: Keyring, ip: str | None) -> bytes | None:
    network = network_of(ip, ipv4_prefix=_IPV4_PREFIX)
    return None if network is None else _digest(keyring, "source", str(network))


def choose_bounds(
    settings: Settings, source: bytes | None, *, email: str | None, list_id: int | None = None
) -> Sequence[MailBound]:
    """Return the rate limits for a mail from the network with the digest ``source``.

    A mail to an account owner has no ``email``, and counts only per network and per mailing list.
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
    """Return the rate limits for a reminder. Each mailbox receives at most one per day."""
    digest = _digest(settings.keyring, "reminder", email_addresses.derive_mailbox(email))
    mail_bounds = choose_bounds(settings, source, email=email, list_id=list_id)
    return [MailBound("reminder", _MAX_REMINDERS, digest), *mail_bounds]


def admit_mail(uow: UnitOfWork, bounds: Sequence[MailBound]) -> bool:
    """Count a mail, or return false if it exceeds a rate limit.

    Call this near the end of the transaction, because it locks the counters of rate limits.
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
    # Import the library for rate limits only when needed, because most processes never count mails.
    from storage.redis.rate_counters import parse_limits

    for limit in parse_limits(bound.limits):
        window = limit.get_expiry()
        # A rate limit such as ``5/hour, 20/day`` has a separate counter per time window.
        digest = bound.digest + window.to_bytes(_WINDOW_BYTES, "big")
        values = {"digest": digest, "window": window, "bound": limit.amount}
        if uow.session.scalar(_COUNT_MAIL, values) is None:
            raise _BoundReached(bound.name)


def _digest(keyring: Keyring, kind: str, name: str) -> bytes:
    return keyring.signer(_PURPOSE).digest(f"{kind}:{name}".encode())
