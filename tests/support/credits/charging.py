"""Creates accounts with credits, and callers who charge these accounts."""

from dataclasses import dataclass
from decimal import Decimal

from devstack.harness.stack import Owner, Stack
from services.credits import verify
from tests.support.credits.credits import grant


@dataclass(frozen=True)
class CreditAccounts:
    stack: Stack

    def create_holder(self, credits: str) -> Owner:
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
