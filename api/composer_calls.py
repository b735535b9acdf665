"""Calls the composer, which generates metadata and finds photos, for the API and the console."""

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
from services.composer.photos import PhotoCopy, PhotoSearch, PhotoSearchResult, PhotoUse
from services.composer.requests import MetadataRequest, MetadataResult, WorkerRequest
from services.credits import own_charges
from services.jobs.idempotency import AcceptedJob, IdempotencyKey

log = get_logger(__name__)

NO_PREFERENCE = Preference(wait=None, respond_async=False)


@dataclass(frozen=True)
class ComposerCaller:
    """Calls the composer for one request.

    All public methods raise ``quota.exceeded`` and the same errors as ``WorkerCalls.call``.
    """

    request: Request
    state: State
    caller: Caller
    preference: Preference = NO_PREFERENCE

    async def write_metadata(
        self, metadata_request: MetadataRequest, build_key: Callable[[], IdempotencyKey]
    ) -> MetadataResult:
        """Return generated metadata for a post, such as a summary.

        Each call to the language model costs credits.

        Args:
            build_key: a function that returns the idempotency key of the charge. ``build_key`` runs
                in a thread, because it hashes the whole request body.
        """
        call_charges.require_spending_scope(self.state.resources.settings, self.caller)
        await self._count_call()
        cache = self.state.metadata_cache
        key, cached = await REQUESTS.run(cache.look_up, metadata_request)
        if cached is not None:
            return cached
        price = call_charges.get_call_price(self.state.resources.settings)
        if price is None:
            return MetadataResult.from_payload(
                await self._call_worker(metadata_request, shared_key=key)
            )
        charge = partial(
            call_charges.charge_call,
            self.state.resources,
            price,
            await REQUESTS.run(build_key),
            metadata_request,
            same=key,
            seconds=self.preference.seconds_at_most(metadata_request.max_seconds),
        )
        entry_id = await MONEY.run(charge)
        payment = {call_charges.IS_CHARGED: entry_id is not None}
        try:
            result = await self._call_worker(
                metadata_request, shared_key=key, extra_payload=payment
            )
        finally:
            if entry_id is not None:
                # Reverse the charge if no worker called the language model.
                try:
                    await MONEY.run(
                        own_charges.reverse_charge, self.state.resources.database, entry_id
                    )
                except (DomainError, psycopg2.Error) as error:
                    # If reversing the charge fails, return the metadata anyway. If no language
                    # model was called, maintenance later reverses the charge.
                    log.warning("composer.charge_not_reversed", reason=type(error).__name__)
        return MetadataResult.from_payload(result)

    async def search_photos(self, search: PhotoSearch) -> PhotoSearchResult:
        await self._count_call()
        key, cached = await REQUESTS.run(self.state.photos.look_up, search)
        if cached is not None:
            return cached
        return PhotoSearchResult.from_payload(await self._call_worker(search, shared_key=key))

    async def obtain_photo_url(self, use: PhotoUse) -> str:
        """Return the URL of a photo, and report the use of the photo to its provider."""
        await self._count_call()
        result = await self._call_worker(use)
        return str(result["url"])

    async def copy_photo(self, copy: PhotoCopy) -> AcceptedJob:
        """Return the job that converts the image."""
        await self._count_call()
        return AcceptedJob(**await self._call_worker(copy))

    async def _count_call(self) -> None:
        resources = self.state.resources
        await RECORDS.run(
            quotas.count_composer_call,
            resources.database,
            resources.settings,
            self.caller.account_id,
        )

    async def _call_worker(
        self,
        worker_request: WorkerRequest,
        *,
        shared_key: str | None = None,
        extra_payload: Mapping[str, bool] | None = None,
    ) -> dict[str, Any]:
        body_of(self.request.scope).move_to_large_pool()
        call = self.state.worker_calls.call(
            worker_request.kind,
            worker_request.to_payload() | dict(extra_payload or {}),
            seconds=self.preference.seconds_at_most(worker_request.max_seconds),
            account_id=self.caller.account_id,
            shared_key=shared_key,
        )
        return await run_while_connected(self.request.receive, call)
