"""Calls to the composer, from the API or from a page of the console."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg2
from fastapi import Request

from api.limits.bulkheads import MONEY, RECORDS, REQUESTS
from api.middleware.body_limits import body_of
from api.preferences import Preference
from api.state import State
from api.waiting.disconnects import run_while_connected
from core.errors import DomainError
from core.logging import get_logger
from services.access import quotas
from services.access.caller import Caller
from services.composer import call_charges
from services.composer.photos import PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import MetadataRequest, MetadataResult, WorkerRequest
from services.credits import own_charges
from services.jobs.idempotency import IdempotencyKey

log = get_logger(__name__)

NO_PREFERENCE = Preference(wait=None, respond_async=False)


@dataclass(frozen=True)
class ComposerCaller:
    """The caller at the other end of one request, who waits for the composer.

    Each call raises ``quota.exceeded``, what ``WorkerCalls.call`` raises, and what the work does.
    """

    request: Request
    state: State
    caller: Caller
    preference: Preference = NO_PREFERENCE

    async def written(
        self, asked: MetadataRequest, name: Callable[[], IdempotencyKey]
    ) -> MetadataResult:
        """Return what a writer made of a post; a model's answer may cost credits.

        Args:
            name: of the call, for its charge; it is asked for in a thread.

        Raises ``auth.insufficient_scope``, ``credits.insufficient``, ``idempotency.in_progress``.
        """
        call_charges.require_spending_scope(self.state.resources.settings, self.caller)
        await self._count()
        cache = self.state.metadata_cache
        key, cached = await REQUESTS.run(cache.look_up, asked)
        if cached is not None:
            return cached
        price = call_charges.get_call_price(self.state.resources.settings)
        if price is None:
            return MetadataResult.from_payload(await self._ask_worker(asked, same=key))
        charge = partial(
            call_charges.charge_call,
            self.state.resources,
            price,
            await REQUESTS.run(name),
            asked,
            same=key,
            seconds=self.preference.seconds_at_most(asked.max_seconds),
        )
        entry_id = await MONEY.run(charge)
        more = {call_charges.IS_CHARGED: entry_id is not None}
        try:
            answer = await self._ask_worker(asked, same=key, more=more)
        finally:
            if entry_id is not None:
                # Unless a worker has taken it to ask the model, the charge is reversed.
                try:
                    await MONEY.run(
                        own_charges.reverse_charge, self.state.resources.database, entry_id
                    )
                except (DomainError, psycopg2.Error) as error:
                    # The answer is there all the same. Maintenance reverses it soon.
                    log.warning("composer.charge_not_reversed", reason=type(error).__name__)
        return MetadataResult.from_payload(answer)

    async def photos(self, search: PhotoSearch) -> PhotoSearchResult:
        await self._count()
        key, cached = await REQUESTS.run(self.state.photos.look_up, search)
        if cached is not None:
            return cached
        return PhotoSearchResult.from_payload(await self._ask_worker(search, same=key))

    async def url_of_photo(self, use: PhotoUse) -> str:
        """Return the URL of the photo's file; its provider is told that the photo is used."""
        await self._count()
        answer = await self._ask_worker(use)
        return str(answer["url"])

    async def _count(self) -> None:
        resources = self.state.resources
        await RECORDS.run(
            quotas.count_composer_call, resources.database, resources.settings, self.caller.user_id
        )

    async def _ask_worker(
        self,
        asked: WorkerRequest,
        *,
        same: str | None = None,
        more: Mapping[str, bool] | None = None,
    ) -> dict[str, Any]:
        body_of(self.request.scope).keep()
        call = self.state.worker_calls.call(
            asked.kind,
            asked.to_payload() | dict(more or {}),
            seconds=self.preference.seconds_at_most(asked.max_seconds),
            owner_id=self.caller.user_id,
            same=same,
        )
        return await run_while_connected(self.request.receive, call)
