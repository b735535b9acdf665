"""Finds the enhanced status code (RFC 3463) of a bounce, and chooses the class of the bounce.

The same table decides about the bounces that senders report and about the bounces in imported
files.
"""

import re
from collections.abc import Mapping

from integrations.senders.port import BounceClass

# A mail server's reply can contain an enhanced status code, but also numbers such as IP addresses
# and program versions. The enhanced status code is at the start of the reply, after another code,
# or after a punctuation mark such as "#" or ":".
_STATUS = re.compile(
    r"(?:^\s*(?:smtp\s?[:;]\s*)?|(?<![\d.])[245](?:\d\d|xx)[\s:;,)\]-]{1,3}|[#:;(\[]\s?"
    r"|(?<=[45]\.\d\.\d )|\b(?:code|status|dsn|error)[\s=]{1,3})"
    r"[<(\[#\"']{0,2}(?P<status>[45]\.\d{1,3}\.\d{1,3})(?![\d.]*\d)",
    re.ASCII | re.IGNORECASE,
)
# Codes that only say that the mail wasn't delivered, and don't name a cause (RFC 3463, section
# 3.1).
_UNSPECIFIC_STATUSES = ("4.0.0", "5.0.0")
_MAX_SEARCHED_CHARACTERS = 2_000
# Maps codes, and the beginnings of codes, to the class of the bounce. ``None`` means that mail
# servers use the code for different causes, so that the provider's word for the bounce decides. The
# longest beginning of a code applies. The provider's word also decides about all other codes.
_CLASSES: Mapping[str, BounceClass | None] = {
    # The recipient's address doesn't exist or has moved, or its domain accepts no mail.
    **dict.fromkeys(("5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10"), BounceClass.HARD),
    # Gmail uses 5.2.1 for a disabled account and for a limited rate. Microsoft uses 5.4.1 for
    # recipients that don't exist.
    **dict.fromkeys(("5.1.0", "5.2.0", "5.2.1", "5.4.1", "5.4.4")),
    # The mailbox is full.
    "5.2.2": BounceClass.SOFT,
    # The sender's address, the size of the mail, the recipient's mail system, the route, the
    # protocol, the content, or a policy.
    **dict.fromkeys(("5.1.7", "5.1.8", "5.2.3"), BounceClass.BLOCKED),
    **dict.fromkeys(("5.3", "5.4", "5.5", "5.6", "5.7"), BounceClass.BLOCKED),
    # The recipient's server limits or distrusts the sender.
    "4.7": BounceClass.BLOCKED,
    "4": BounceClass.SOFT,
}


def find_status(*texts: object) -> str | None:
    """Prefer a code that names a cause, such as ``5.1.1``, to an earlier code such as ``5.0.0``."""
    statuses = [
        match["status"]
        for text in texts
        if isinstance(text, str)
        for match in _STATUS.finditer(text[:_MAX_SEARCHED_CHARACTERS])
    ]
    specific_statuses = [status for status in statuses if status not in _UNSPECIFIC_STATUSES]
    return next(iter(specific_statuses or statuses), None)


def choose_bounce_class(named_class: BounceClass, status: str | None) -> BounceClass:
    """Correct the class that the provider reports.

    A hard bounce turns off the list's mail to a member, so a bounce isn't hard if the code blames
    the sender, the mail or a full mailbox. Soft bounces are counted against the member, so a bounce
    that the provider calls blocked never becomes soft.
    """
    bounce_class = None if status is None else _find_class(status)
    is_blocked = named_class in (BounceClass.BLOCKED, BounceClass.CONTENT)
    if bounce_class is None or (is_blocked and bounce_class is not BounceClass.HARD):
        return named_class
    return bounce_class


def _find_class(status: str) -> BounceClass | None:
    numbers = [str(int(number)) for number in status.split(".")]
    beginnings = (".".join(numbers[:count]) for count in range(len(numbers), 0, -1))
    return next((_CLASSES[each] for each in beginnings if each in _CLASSES), None)
