"""Decides by the local part of a recipient whether the sandbox refuses, delays or defers a mail.

The simulated faults are the same for mails over SMTP and for mails over the simulated HTTP APIs.
"""

from collections import Counter
from collections.abc import Iterable

REJECTED = "reject"
DEFERRED = "later"
SLOW = "slow"
_DEFERRED_ATTEMPTS = 2
# How long the sandbox mail server waits before it accepts a mail to an address with the local part
# ``slow``. The delay must exceed Pressroom's timeout for mail servers.
SLOW_SECONDS = 60.0


def has_fault(address: str, fault: str) -> bool:
    """Return whether an address has the local part ``fault``, with or without a tag such as
    ``+news``.
    """
    return address.rpartition("@")[0].partition("+")[0].lower() == fault


class DeferredMails:
    """Counts the failed attempts to send mails to ``later@…``."""

    def __init__(self) -> None:
        self._attempts: Counter[tuple[str, str]] = Counter()

    def defer(self, recipients: Iterable[str], subject: str) -> int:
        """Count a failed attempt and return its number, or return 0 if the mail isn't deferred."""
        deferred = [each.lower() for each in recipients if has_fault(each, DEFERRED)]
        if not deferred:
            return 0
        mail = (deferred[0], subject)
        self._attempts[mail] += 1
        if self._attempts[mail] <= _DEFERRED_ATTEMPTS:
            return self._attempts[mail]
        del self._attempts[mail]
        return 0
