"""Creates accounts with credits, and callers who charge these accounts."""

import json
import threading
from dataclasses import dataclass, field
from decimal import Decimal

import httpx2

from devstack.harness.stack import Owner, Stack
from services.credits import verify
from tests.support.credits.credits import consume, grant


@dataclass(frozen=True)
class CreditAccounts:
    """Creates credit accounts in a test stack, and reads the accounts from the database."""

    stack: Stack

    def create_holder(self, credits: str) -> Owner:
        """Create an owner who has the given amount of credits."""
        owner = self.stack.create_owner()
        grant(self.stack, owner.user_id, credits)
        return owner

    def balance(self, owner: Owner) -> Decimal:
        [(balance,)] = self.stack.query(
            "SELECT balance FROM credit_accounts WHERE user_id = %s", owner.user_id
        )
        assert isinstance(balance, Decimal)
        return balance

    def entries(self, owner: Owner) -> list[tuple[object, ...]]:
        return self.stack.query(
            "SELECT seq, delta, balance_after, source_id FROM credit_entries"
            " WHERE user_id = %s ORDER BY seq",
            owner.user_id,
        )

    def require_clean_books(self) -> None:
        assert verify.verify_ledger(self.stack.resources, full=True).faults == []


@dataclass
class Spenders:
    """Callers who repeatedly charge one account, and the responses that the callers received.

    Attributes:
        acknowledged: maps each successful charge to the balance in its response.
        unsure: the charges whose responses don't tell whether the charges succeeded.
        strange: unexpected responses and broken connections.
    """

    bank: CreditAccounts
    owner: Owner
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, Decimal] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    strange: list[str] = field(default_factory=list)

    def have_charged(self, count: int) -> bool:
        return len(self.acknowledged) > count

    def run(self, number: int) -> None:
        with self.bank.stack.client(self.owner.key) as client:
            count = 0
            while not self.stop.is_set():
                count += 1
                self._charge(client, f"{number}-{count}")

    def _charge(self, client: httpx2.Client, name: str) -> None:
        # Half of the callers retry with an idempotency key until the charge succeeds.
        key = f"charge-of-spender-{name}" if int(name[-1]) % 2 else None
        while True:
            try:
                reply = consume(client, "0.0007", name, key=key)
            except httpx2.HTTPError as error:
                self.strange.append(repr(error))
                return
            if reply.status_code == 200:
                entry = json.loads(reply.text, parse_float=Decimal)["data"]
                self.acknowledged[name] = entry["balance_after"]
                self.unsure.discard(name)
                return
            self.unsure.add(name)
            if reply.status_code not in {409, 503}:
                self.strange.append(reply.text)
                return
            if key is None or self.stop.wait(0.05):
                return
