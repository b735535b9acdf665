"""Mail that a stranger can have sent to any address: its words, and how much of it there may be.

A stranger chooses the address, and the title of a list. Titles are shown as quotations that lead
nowhere, a subject has no other word of a stranger's, and mails are counted by mailbox, domain, list
and network.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from sqlalchemy import text

from core.keyring import Keyring
from core.languages.shown_lines import fold_look_alikes
from core.logging import get_logger
from core.networks import network_of
from core.settings import Settings
from services.accounts import email_addresses
from storage.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList


log = get_logger(__name__)

_PURPOSE = "mail-count"
# The smallest IPv4 network that a provider gives to a few customers.
_IPV4_PREFIX = 24
_WINDOW_BYTES = 8
_MAX_REMINDERS = "1/day"

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
    """A limit that a mail counts against, such as that of its mailbox."""

    name: str
    limits: str
    digest: bytes


class _Full(Exception):
    """The bound that is reached."""


def source_digest(keyring: Keyring, ip: str | None) -> bytes | None:
    """The digest under which a stranger's mails are counted; ``None`` without an IP address."""
    network = network_of(ip, ipv4_prefix=_IPV4_PREFIX)
    return None if network is None else _digest(keyring, "source", str(network))


def choose_bounds(
    settings: Settings, source: bytes | None, *, email: str | None, list_id: int | None = None
) -> Sequence[MailBound]:
    """The bounds of one mail. The narrow ones come first: a stranger whom one of these stops has
    taken nothing of what all share.

    Args:
        source: as ``source_digest`` made it.
        email: ``None`` for the address of an account, which has limits of its own.
    """
    mailbox = None if email is None else email_addresses.mailbox_of(email)
    counted = (
        ("mailbox", settings.mail_limit_mailbox, mailbox),
        ("list", settings.mail_limit_list, list_id),
        ("domain", settings.mail_limit_domain, mailbox and mailbox.rpartition("@")[2]),
    )
    of_source = [] if source is None else [MailBound("source", settings.mail_limit_source, source)]
    return of_source + [
        MailBound(name, limits, _digest(settings.keyring, name, str(subject)))
        for name, limits, subject in counted
        if subject is not None
    ]


def choose_reminder_bounds(
    settings: Settings, source: bytes | None, *, email: str, list_id: int
) -> Sequence[MailBound]:
    """Return the bounds of a mail, after the one reminder that a mailbox gets a day."""
    digest = _digest(settings.keyring, "reminder", email_addresses.mailbox_of(email))
    others = choose_bounds(settings, source, email=email, list_id=list_id)
    return [MailBound("reminder", _MAX_REMINDERS, digest), *others]


def admit_mail(uow: UnitOfWork, bounds: Sequence[MailBound]) -> bool:
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


# Mail programs turn addresses and telephone numbers into links. Without these limits, a title could
# send the reader of our mail to another place.
MAX_SHOWN_CHARACTERS = 60
_LEFT_OUT = "…"
# Full stops of other scripts, which browsers take for one in a domain's name.
_FULL_STOPS = str.maketrans("\u3002\uff61\u2024\u2027", "....")
# Closing one of these would end the quotation.
_QUOTES = str.maketrans(dict.fromkeys('"“”„‟«»\u2039\u203a\u301d\u301e\uff02', "'"))
# A mail program, or its reader, could take these for somewhere to go, besides the name of a domain:
# a URL, an e-mail address, an IP address, and a full stop or an at sign in brackets.
_PLACE = re.compile(
    r"//|@|\\|\bwww\b|\bmailto\b|\bhttps?\b:|xn--|(?<!\d)\d+(?:\.\d+){3}"
    r"|[(\[]\s*(?:\.|dot|at|punkt|punto|point|ponto)\s*[)\]]",
    re.IGNORECASE,
)
# The label after a dot without a space: a domain's last one, if there is such a top-level domain.
_LABEL = re.compile(r"(?<=[^\W_]\.)[^\W\d_]{2,}")
# RFC 2606 and RFC 6761; and .onion, which one browser opens.
_SPECIAL_DOMAINS = frozenset({"example", "invalid", "localhost", "test", "local", "onion"})
# A number of seven digits or more, such as that of a telephone.
_NUMBER = re.compile(r"\+?\d(?:[\s().\-/]{0,3}\d){6,}")
# A date, or two years.
_DATE = re.compile(
    r"(?:\d{1,2}[./-] ?){2}(?:19|20)\d\d|(?:19|20)\d\d-\d{1,2}-\d{1,2}"
    r"|(?:19|20)\d\d[-/ ]{1,3}(?:19|20)\d\d"
)
_BLANKS = re.compile(r"\s+")
_LEFT_OUTS = re.compile(rf"{_LEFT_OUT}(?: ?{_LEFT_OUT})+")
# Format and control characters, private and unassigned ones: among them those that turn the
# direction of a text around, and those that are not seen at all.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def leads_away(text: str) -> bool:
    """Return whether a mail program, or its reader, could take a part of it for somewhere to go."""
    # A joiner within an address must not hide it from us: its reader does not see the joiner.
    plain = "".join(each for each in _plain(text) if category(each) != "Cf")
    return _names_place(plain) or any(map(_can_be_called, _NUMBER.finditer(plain)))


def _plain(text: str) -> str:
    return normalize("NFKC", text.translate(_FULL_STOPS)).translate(_FULL_STOPS)


def _names_place(text: str) -> bool:
    labels = (match[0].casefold() for match in _LABEL.finditer(text))
    domains = (each for label in labels for each in (label, fold_look_alikes(label)))
    is_domain = any(
        each in _SPECIAL_DOMAINS or _suffixes().publicsuffix(each) is not None for each in domains
    )
    return is_domain or _PLACE.search(text) is not None


@cache
def _suffixes() -> "PublicSuffixList":
    # Imported here: reading the list takes a moment, and most processes show no such words.
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(accept_unknown=False)


def _can_be_called(found: re.Match[str]) -> bool:
    return _DATE.fullmatch(found[0]) is None


def quoted(text: str) -> str:
    """The text in quotation marks, as harmless as it can be; ``“…”`` when nothing of it is left."""
    plain = _plain(text)
    spaced = _BLANKS.sub(" ", plain)
    seen = "".join(each for each in spaced if category(each) not in _UNSEEN)
    words = seen.translate(_QUOTES).split()
    remaining_text = " ".join(_LEFT_OUT if _names_place(word) else word for word in words)
    callable_left_out = _NUMBER.sub(
        lambda it: _LEFT_OUT if _can_be_called(it) else it[0], remaining_text
    )
    shortened = _LEFT_OUTS.sub(_LEFT_OUT, callable_left_out)
    if len(shortened) > MAX_SHOWN_CHARACTERS:
        shortened = shortened[: MAX_SHOWN_CHARACTERS - 1].rstrip(f" {_LEFT_OUT}") + _LEFT_OUT
    return f"“{shortened or _LEFT_OUT}”"


def masked_address(address: str) -> str:
    """Enough of an address for those who know it, and written so that no program makes a link."""
    local, _, domain = address.rpartition("@")
    masked = f"{local[:1]}… at {' dot '.join(domain.split('.'))}"
    return (
        masked if len(masked) <= MAX_SHOWN_CHARACTERS else masked[: MAX_SHOWN_CHARACTERS - 1] + "…"
    )
