"""Calls of the composer, by a program or from a page: counted, charged, and done by a worker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from api.limits.bulkheads import MONEY, RECORDS, REQUESTS
from api.middleware.body_limits import body_of
from api.parameters import Preference
from api.state import State
from api.waiting.disconnects import while_connected
from services.access import quotas
from services.access.caller import Caller
from services.composer import call_charges
from services.composer.call_charges import CallCharge
from services.composer.metadata_requests import MetadataRequest, MetadataResult
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.worker_requests import WorkerRequest
from services.jobs.idempotency import IdempotencyKey

NO_PREFERENCE = Preference(wait=None, respond_async=False)


@dataclass(frozen=True)
class ComposerCaller:
    """Who waits for the composer, at the other end of one request.

    Each call raises ``quota.exceeded``, what ``WorkerCalls.call`` raises, and what the work does.
    """

    request: Request
    state: State
    caller: Caller
    preference: Preference = NO_PREFERENCE

    async def written(
        self, asked: MetadataRequest, name: Callable[[], IdempotencyKey]
    ) -> MetadataResult:
        """What a writer made of a post; it is paid where the answer of a model costs something.

        Args:
            name: of the call, for its charge; it is asked for in a thread.

        Raises ``auth.insufficient_scope``, ``credits.insufficient``, ``idempotency.in_progress``.
        """
        call_charges.require_spender(self.state.resources.settings, self.caller)
        await self._count()
        cache = self.state.metadata_cache
        key, cached = await REQUESTS.run(cache.look_up, asked)
        if cached is not None:
            return cached
        charge = await self._charge(name)
        result = MetadataResult.from_payload(await self._ask_worker(asked, same=key))
        if charge is not None and result.is_fresh_of_model:
            await MONEY.run(charge.settle, asked, result)
            await REQUESTS.run(cache.keep, key, result)
        return result

    async def photos(self, search: PhotoSearch) -> PhotoSearchResult:
        await self._count()
        key, cached = await REQUESTS.run(self.state.photos.look_up, search)
        if cached is not None:
            return cached
        return PhotoSearchResult.from_payload(await self._ask_worker(search, same=key))

    async def url_of_photo(self, use: PhotoUse) -> str:
        """The URL of the photo's file; its provider is told that the photo is used."""
        await self._count()
        answer = await self._ask_worker(use)
        return str(answer["url"])

    async def _count(self) -> None:
        resources = self.state.resources
        await RECORDS.run(
            quotas.count_composer_call, resources.database, resources.settings, self.caller.user_id
        )

    async def _charge(self, name: Callable[[], IdempotencyKey]) -> CallCharge | None:
        """What the call costs if a model answers it; raises ``credits.insufficient``."""
        resources = self.state.resources
        price = call_charges.price_of_call(resources.settings)
        if price is None:
            return None
        charge = CallCharge.of_call(resources, price, await REQUESTS.run(name))
        await MONEY.run(charge.require_balance)
        return charge

    async def _ask_worker(self, asked: WorkerRequest, *, same: str | None = None) -> dict[str, Any]:
        body_of(self.request.scope).keep()
        call = self.state.worker_calls.call(
            asked.kind,
            asked.to_payload(),
            seconds=self.preference.seconds_at_most(asked.max_seconds),
            owner_id=self.caller.user_id,
            same=same,
        )
        return await while_connected(self.request.receive, call)
