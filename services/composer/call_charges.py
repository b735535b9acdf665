"""Charges composer calls that use a language model, and records how much each model is used.

If several callers wait for the same result, all have a pending charge, but only one of them pays.
Callers pay for a response of the language model even if they have stopped waiting for it. Results
from the cache and from the offline writer are free.
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
# Under this key, a request's payload states whether the caller is charged. A caller isn't charged
# twice for the same call. The key ``is_charged`` is missing if composer calls are free.
IS_CHARGED = "is_charged"
CALLS = "calls"
TOKENS = "tokens"
SECONDS = "seconds"
# The Redis hash with the usage counts of language models.
_USAGE_KEY = "pressroom:llm-usage"
# Separates the parts of a field name in the Redis hash. Names of language models contain no spaces.
_SEPARATOR = " "


def get_call_price(settings: Settings) -> Decimal | None:
    """Return ``None`` if composer calls are free."""
    return None if settings.llm_provider == "offline" else settings.composer_price


def require_spending_scope(settings: Settings, caller: Caller) -> None:
    if get_call_price(settings) is not None:
        require_scope(caller, Scope.CREDIT_FULL)


def charge_call(
    resources: Resources,
    price: Decimal,
    call: IdempotencyKey,
    request: MetadataRequest,
    *,
    same: str,
    seconds: float,
) -> int | None:
    """Charge a caller before a composer call is enqueued.

    Returns the id of the charge in the ledger, or ``None`` if the call has already been charged and
    settled. The charge depends on both the idempotency key and the input, because callers may reuse
    a key for other input.
    """
    digest = hashlib.sha256(call.fingerprint + call.key.encode()).hexdigest()
    key = replace(call, route=SOURCE_TYPE, key=digest)
    meta = {
        "wrote": "metadata" if request.fields else "tweets",
        "writer": f"openai/{resources.settings.llm_model}",
    }
    work = request_scripts.build_request_id(request.kind.queue, same)
    return own_charges.charge_call(
        resources, key, price, source_id=call.key, meta=meta, work=work, seconds=seconds
    )


@dataclass
class RunPayment:
    """The charge for a composer call that a worker makes."""

    database: Database
    work: str
    worker: str
    is_charged: bool
    # True if the caller must pay for the call, because the provider has responded.
    is_due: bool = field(default=False, init=False)
    _is_taken: bool = field(default=False, init=False)
    _entry_id: int | None = field(default=None, init=False)

    def take_charge(self) -> None:
        """Claim the charge of one waiting caller, before the language model is called.

        Raises ``idempotency.in_progress`` if no charged caller waits any longer.
        """
        if not self._is_taken:
            self._entry_id = own_charges.take_charge(self.database, self.work, self.worker)
            if self._entry_id is None and self.is_charged:
                raise CHARGE_IN_PROGRESS()
            self._is_taken = True

    def settle(self) -> None:
        if self._entry_id is not None:
            end_charge = own_charges.settle_charge if self.is_due else own_charges.reverse_charge
            end_charge(self.database, self._entry_id, self.worker)


def record_usage(client: redis.Redis, usage: Usage) -> None:
    """Redis errors are only logged, because the usage counts are not essential."""
    try:
        with client.pipeline(transaction=False) as pipeline:
            pipeline.hincrby(_USAGE_KEY, _build_name(CALLS, usage.outcome, usage.model), 1)
            pipeline.hincrby(_USAGE_KEY, _build_name(TOKENS, "in", usage.model), usage.tokens_in)
            pipeline.hincrby(_USAGE_KEY, _build_name(TOKENS, "out", usage.model), usage.tokens_out)
            pipeline.hincrbyfloat(_USAGE_KEY, _build_name(SECONDS, "", usage.model), usage.seconds)
            pipeline.execute()
    except RedisError as error:
        log.warning("llm.usage_not_noted", reason=type(error).__name__)


def read_usage(client: redis.Redis) -> dict[tuple[str, str, str], float]:
    """Return the number of calls, tokens and seconds of each language model.

    Each key of the result consists of a unit, an outcome or direction, and a model's name.
    """
    counts: dict[Any, Any] = client.hgetall(_USAGE_KEY)
    usage = {}
    for name, value in counts.items():
        unit, detail, model = name.decode().split(_SEPARATOR, 2)
        usage[unit, detail, model] = float(value)
    return usage


def _build_name(unit: str, detail: str, model: str) -> str:
    return _SEPARATOR.join((unit, detail, model))
