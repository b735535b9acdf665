"""What a call of the composer costs where the operator has set a price.

A call is charged when a language model wrote its answer, before the answer is given. What is cached
or written offline costs nothing. So a result is cached only once a caller has paid for it: who
hangs up before the answer, or can't pay, would else find it there for nothing.
"""

import hashlib
from dataclasses import dataclass, replace
from decimal import Decimal

from core.scopes import Scope
from core.settings import Settings
from services.access.caller import Caller, require_scope
from services.composer.metadata_requests import MetadataRequest, MetadataResult
from services.jobs.idempotency import IdempotencyKey
from services.money.credits import own_charges
from services.money.credits.own_charges import OwnCharge
from storage.resources import Resources

SOURCE_TYPE = "composer"


def price_of_call(settings: Settings) -> Decimal | None:
    """What an answer of the language model costs; ``None`` where no answer costs anything."""
    return None if settings.llm_provider == "offline" else settings.composer_price


def require_spender(settings: Settings, caller: Caller) -> None:
    """Raises ``auth.insufficient_scope`` for who may not spend what a call can cost."""
    if price_of_call(settings) is not None:
        require_scope(caller, Scope.CREDIT_FULL)


@dataclass(frozen=True)
class CallCharge:
    """The charge that one call may come to."""

    resources: Resources
    charge: OwnCharge

    @classmethod
    def of_call(cls, resources: Resources, price: Decimal, call: IdempotencyKey) -> "CallCharge":
        """Callers choose the names of their calls, so a name stands for a call only together with
        what is asked."""
        digest = hashlib.sha256(call.fingerprint + call.key.encode()).hexdigest()
        key = replace(call, route=SOURCE_TYPE, key=digest)
        return cls(resources, OwnCharge(price, SOURCE_TYPE, call.key, key))

    def require_balance(self) -> None:
        """Raises ``credits.insufficient``."""
        own_charges.require_balance(self.resources, self.charge)

    def settle(self, asked: MetadataRequest, result: MetadataResult) -> None:
        """Charge for a result that a language model wrote for this call.

        Raises ``credits.insufficient`` and ``idempotency.in_progress``.
        """
        wrote = "metadata" if asked.wanted else "tweets"
        meta = {"wrote": wrote, "writer": result.source}
        own_charges.charge_once(self.resources, self.charge, meta)
