"""The price of a call of the composer, where the operator has set one.

A call is charged before a language model is asked. Each of the callers who share a run has a charge
of their own, of which the run takes one. A model that answered is paid for, also when everybody has
left by then; what is cached, or written offline in its place, costs nothing.
"""

import hashlib
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import redis
from redis.exceptions import RedisError

from core.errors.money import CHARGE_IN_PROGRESS
from core.logging import get_logger
from core.scopes import Scope
from core.settings import Settings
from integrations.llm.port import Usage
from services.access.caller import Caller, require_scope
from services.composer.requests import MetadataRequest
from services.credits import own_charges
from services.jobs.idempotency import IdempotencyKey
from storage.database import Database
from storage.redis import request_scripts
from storage.resources import Resources

log = get_logger(__name__)

SOURCE_TYPE = "composer"
# In the payload for the worker: whether each caller is charged, which only a call that was paid
# for before is not. Without a price it is not there.
IS_CHARGED = "is_charged"


def price_of_call(settings: Settings) -> Decimal | None:
    """Return the price of an answer of the language model; ``None`` where it costs nothing."""
    return None if settings.llm_provider == "offline" else settings.composer_price


def require_spender(settings: Settings, caller: Caller) -> None:
    """Raises ``auth.insufficient_scope`` for who may not spend what a call can cost."""
    if price_of_call(settings) is not None:
        require_scope(caller, Scope.CREDIT_FULL)


def charge_call(
    resources: Resources,
    price: Decimal,
    call: IdempotencyKey,
    asked: MetadataRequest,
    *,
    same: str,
    seconds: float,
) -> int | None:
    """Charge for a call of the composer before the work of the call is enqueued.

    Return the id of the ledger entry, or ``None`` if the same call was already charged and settled.
    Callers choose the idempotency keys of their calls, and may use one key for different inputs.
    The key of the charge therefore also depends on the input. Raises the errors of
    ``own_charges.charge_call``.
    """
    digest = hashlib.sha256(call.fingerprint + call.key.encode()).hexdigest()
    key = replace(call, route=SOURCE_TYPE, key=digest)
    meta = {
        "wrote": "metadata" if asked.wanted else "tweets",
        "writer": f"openai/{resources.settings.llm_model}",
    }
    work = request_scripts.build_request_id(asked.kind.queue, same)
    return own_charges.charge_call(
        resources, key, price, source_id=call.key, meta=meta, work=work, seconds=seconds
    )


@dataclass
class RunPayment:
    """The payment for one run: the charge of one of its callers."""

    database: Database
    work: str
    worker: str
    is_owed: bool
    # The provider has answered.
    is_due: bool = field(default=False, init=False)
    _is_taken: bool = field(default=False, init=False)
    _entry_id: int | None = field(default=None, init=False)

    def take(self) -> None:
        """Take a charge before the model is asked for the first time.

        Raises ``idempotency.in_progress`` when all who were charged have left meanwhile.
        """
        if not self._is_taken:
            self._entry_id = own_charges.take_charge(self.database, self.work, self.worker)
            if self._entry_id is None and self.is_owed:
                raise CHARGE_IN_PROGRESS()
            self._is_taken = True

    def end(self) -> None:
        if self._entry_id is not None:
            end = own_charges.settle_charge if self.is_due else own_charges.reverse_charge
            end(self.database, self._entry_id, self.worker)


_SUMS = "pressroom:llm-usage"
# A model's name may hold any character but this one.
_APART = " "
CALLS = "calls"
TOKENS = "tokens"
SECONDS = "seconds"


def note_usage(client: redis.Redis, usage: Usage) -> None:
    """Never raises: a lost count is no reason to lose an answer."""
    try:
        with client.pipeline(transaction=False) as together:
            together.hincrby(_SUMS, _name(CALLS, usage.outcome, usage.model), 1)
            together.hincrby(_SUMS, _name(TOKENS, "in", usage.model), usage.tokens_in)
            together.hincrby(_SUMS, _name(TOKENS, "out", usage.model), usage.tokens_out)
            together.hincrbyfloat(_SUMS, _name(SECONDS, "", usage.model), usage.seconds)
            together.execute()
    except RedisError as error:
        log.warning("llm.usage_not_noted", reason=type(error).__name__)


def noted_usage(client: redis.Redis) -> dict[tuple[str, str, str], float]:
    """The sums by what is counted, its outcome or direction, and the model."""
    sums: dict[Any, Any] = client.hgetall(_SUMS)
    found = {}
    for name, value in sums.items():
        what, which, model = name.decode().split(_APART, 2)
        found[what, which, model] = float(value)
    return found


def _name(what: str, which: str, model: str) -> str:
    return _APART.join((what, which, model))
