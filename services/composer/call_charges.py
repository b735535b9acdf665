"""Charges callers of the composer for the use of a language model, and records the usage.

The operator can set a price for each composer call that uses a language model. A caller is charged
before the worker calls the language model. If several callers wait for the same result, each caller
has a pending charge, but Pressroom collects only one of these charges. A response of the language
model must be paid for, even if no caller waits for the result anymore. Results from the cache and
from the offline writer are free.
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
# The key in a worker's payload that says whether the caller is charged for the call. A caller is
# not charged again for a call that was already paid for. If composer calls are free, the payload
# lacks the key ``is_charged``.
IS_CHARGED = "is_charged"
CALLS = "calls"
TOKENS = "tokens"
SECONDS = "seconds"
# The key of the Redis hash that counts the usage of language models.
_USAGE_KEY = "pressroom:llm-usage"
# The separator between the parts of a field name in the Redis hash that counts the usage. The name
# of a language model never contains a space.
_SEPARATOR = " "


def get_call_price(settings: Settings) -> Decimal | None:
    """Return the price of a composer call, or ``None`` if composer calls are free."""
    return None if settings.llm_provider == "offline" else settings.composer_price


def require_spending_scope(settings: Settings, caller: Caller) -> None:
    """Raise ``auth.insufficient_scope`` if the caller's credential may not pay for a call."""
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
    """Charge a caller for a composer call before the worker's part of the call is enqueued.

    Returns the id of the charge in the ledger, or ``None`` if the call was already charged and
    settled. The key of the charge depends on the idempotency key and the input, because a caller
    may use the same idempotency key for different inputs. Raises all errors that
    ``own_charges.charge_call`` raises.
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
    """The payment for one run of the composer in a worker.

    One of the callers that wait for the result pays for the composer's run.
    """

    database: Database
    work: str
    worker: str
    is_charged: bool
    # True after the provider of the language model responded, because a response must be paid for.
    is_due: bool = field(default=False, init=False)
    _is_taken: bool = field(default=False, init=False)
    _entry_id: int | None = field(default=None, init=False)

    def take_charge(self) -> None:
        """Collect the charge of a waiting caller before the first call to the language model.

        Raises ``idempotency.in_progress`` if no charged caller waits for the result anymore.
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
    """Count the tokens and the time that a call of a language model used.

    Redis errors are only logged, because the counts are optional.
    """
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
    """Return the usage of language models.

    In the result of ``read_usage``, each key consists of a unit, an outcome or direction, and the
    name of a language model.
    """
    counts: dict[Any, Any] = client.hgetall(_USAGE_KEY)
    usage = {}
    for name, value in counts.items():
        unit, detail, model = name.decode().split(_SEPARATOR, 2)
        usage[unit, detail, model] = float(value)
    return usage


def _build_name(unit: str, detail: str, model: str) -> str:
    return _SEPARATOR.join((unit, detail, model))
