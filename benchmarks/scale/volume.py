"""Calculates the number of rows per table for a database of a given size."""

from dataclasses import dataclass
from math import gcd

# From one subscription to the next, the person's number grows by this stride, so that the order of
# people looks random.
_STRIDE = 7_368_787


@dataclass(frozen=True)
class Volume:
    """The size of a filled database.

    At factor 1, the database has the size of a real database with 1,000 owners. The first owner's
    largest list contains half of all subscriptions. The first owner has a tenth of all ledger
    entries, jobs, attachments and events.
    """

    factor: float
    seed: int = 7

    def numbers(self) -> dict[str, int]:
        """Return the values of the placeholders in the SQL statements."""
        people = self._scale(1_500_000)
        subscriptions = self._scale(2_000_000)
        owners = self._scale(1_000)
        imports = self._scale(20_000)
        entries = self._scale(2_000_000)
        largest_account = self._scale(200_000)
        # ``_STRIDE`` and the number of people must be coprime, so that no person is on a list
        # twice.
        assert gcd(_STRIDE, people) == 1
        return {
            "seed": self.seed,
            "owners": owners,
            "people": people,
            "lists": 2 * owners,
            "subscriptions": subscriptions,
            "half": subscriptions // 2,
            "stride": _STRIDE,
            "subscription_events": self._scale(3_000_000),
            "imports": imports,
            "own_imports": imports // 2,
            "import_changes": self._scale(100_000),
            "jobs": self._scale(1_000_000),
            "records": self._scale(500_000),
            "largest_account": largest_account,
            "other_account": (entries - largest_account) // max(owners - 1, 1),
            "unpaid_orders": self._scale(30_000),
            "attachments": self._scale(200_000),
            "events": self._scale(1_000_000),
            "feed_events": self._scale(1_000_000),
            "sessions": self._scale(100_000),
            "api_keys": self._scale(20_000),
            "exports": self._scale(10_000),
            "mails": self._scale(100_000),
            "links": self._scale(100_000),
            "clients": 20,
            "grants": self._scale(10_000),
            "tokens": self._scale(50_000),
            "mailings": self._scale(20_000),
            "reports": self._scale(1_000_000),
            "requests": self._scale(1_000_000),
            "small": self._scale(5_000),
        }

    def _scale(self, rows: int) -> int:
        return max(int(rows * self.factor), 1)
