"""The ledger as its page shows it, and the form that chooses entries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Self

from api.console.of_credits.amounts import credits_text, signed_credits
from api.console.typed_forms import text_or_none, wrong_field
from models import CreditAction
from services.composer import call_charges
from services.money.credits.ledger_search import LedgerFilter

ACTIONS = {
    CreditAction.TOPUP: "Bought",
    CreditAction.CONSUME: "Spent",
    CreditAction.CONSUME_REVERSAL: "Spending taken back",
    CreditAction.TOPUP_REFUND: "Taken back with a refund",
    CreditAction.GRANT: "Given by the operator",
    CreditAction.ADJUST: "Corrected",
    CreditAction.DEBT_PAYMENT: "Paid a debt",
}
# The fields of the form, which stand in the page's URL.
ACTION, FIRST, LAST = "action", "from", "to"


@dataclass(frozen=True)
class ShownBalance:
    credits: str
    # What the next purchase pays first, if anything.
    debt: str | None


@dataclass(frozen=True)
class ShownEntry:
    words: str
    # What it was for, as whoever charged or gave the credits named it.
    source: str
    change: str
    balance_after: str
    order_id: int | None
    at: datetime

    @classmethod
    def of(cls, written: str) -> Self:
        """From an entry as the ledger gives it."""
        entry: dict[str, Any] = json.loads(written, parse_float=Decimal)
        delta, amount = Decimal(entry["delta_credit"]), Decimal(entry["amount_credit"])
        return cls(
            words=ACTIONS[CreditAction(entry["action"])],
            source=_source(entry),
            # What the balance no longer had is a debt, and no change.
            change=signed_credits(delta) if delta else f"0 (debt of {credits_text(amount)})",
            balance_after=credits_text(Decimal(entry["balance_after"])),
            order_id=entry["order_id"],
            at=datetime.fromisoformat(entry["created_at"]),
        )


def shown_balance(written: str) -> ShownBalance:
    """From the account as the ledger gives it."""
    account: dict[str, Any] = json.loads(written, parse_float=Decimal)
    debt = Decimal(account["debt_credit"])
    balance = credits_text(Decimal(account["balance_credit"]))
    return ShownBalance(balance, credits_text(debt) if debt else None)


def ledger_filter(query: Mapping[str, str]) -> LedgerFilter:
    """What the form asks for; raises ``body.invalid``, as its fields are named."""
    action = text_or_none(query, ACTION)
    if action is not None and action not in [*CreditAction]:
        raise wrong_field(ACTION, "must be one of those that the page offers")
    actions = () if action is None else (CreditAction(action),)
    first, last = _day(query, FIRST), _day(query, LAST)
    if first is not None and last is not None and last < first:
        raise wrong_field(LAST, "must not be before the first day")
    return LedgerFilter(actions, first, last)


def action_choices() -> Sequence[tuple[str, str]]:
    return [("", "All kinds"), *((str(action), words) for action, words in ACTIONS.items())]


def _source(entry: Mapping[str, Any]) -> str:
    if entry["order_id"] is not None:
        # The page leads to the order instead.
        return ""
    if entry["source_type"] == call_charges.SOURCE_TYPE:
        return "A call of the composer"
    return str(entry["source_id"])


def _day(query: Mapping[str, str], name: str) -> date | None:
    typed = text_or_none(query, name)
    if typed is None:
        return None
    try:
        return date.fromisoformat(typed)
    except ValueError:
        raise wrong_field(name, "must be a day, such as 2026-11-22") from None
