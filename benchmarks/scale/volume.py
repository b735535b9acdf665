"""How many rows of each kind a database of some size has."""

from dataclasses import dataclass
from math import gcd

# Steps through all people in an order that has nothing to do with their numbers.
_STRIDE = 7_368_787


@dataclass(frozen=True)
class Volume:
    """Numbers of rows at ``factor``; at 1 they are those of a platform with 1,000 owners.

    The first owner has the largest of everything: half of all subscriptions in one list, and a
    tenth of the ledger, of the jobs, of the attachments and of the events.
    """

    factor: float
    seed: int = 7

    def _of(self, at_one: int) -> int:
        return max(int(at_one * self.factor), 1)

    def numbers(self) -> dict[str, int]:
        """The numbers by the names under which the statements use them."""
        people, subscriptions = self._of(1_500_000), self._of(2_000_000)
        owners, imports = self._of(1_000), self._of(20_000)
        entries, largest_account = self._of(2_000_000), self._of(200_000)
        # Each person is on a list, and at most once on each.
        assert gcd(_STRIDE, people) == 1
        return {
            "seed": self.seed,
            "owners": owners,
            "people": people,
            "lists": 2 * owners,
            "subscriptions": subscriptions,
            "half": subscriptions // 2,
            "stride": _STRIDE,
            "subscription_events": self._of(3_000_000),
            "imports": imports,
            "own_imports": imports // 2,
            "import_changes": self._of(100_000),
            "jobs": self._of(1_000_000),
            "records": self._of(500_000),
            "largest_account": largest_account,
            "other_account": (entries - largest_account) // max(owners - 1, 1),
            "unpaid_orders": self._of(30_000),
            "attachments": self._of(200_000),
            "events": self._of(1_000_000),
            "feed_events": self._of(1_000_000),
            "sessions": self._of(100_000),
            "api_keys": self._of(20_000),
            "exports": self._of(10_000),
            "mails": self._of(100_000),
            "links": self._of(100_000),
            "clients": 20,
            "grants": self._of(10_000),
            "tokens": self._of(50_000),
            "small": self._of(5_000),
        }
