from typing import Any

from services.composer.metadata_requests import MetadataRequest
from services.composer.photos import PhotoSearch, PhotoUse
from storage.redis.request_work import RequestLease
from workers.context import WorkerContext


def write(context: WorkerContext, lease: RequestLease) -> dict[str, Any]:
    request = MetadataRequest.from_payload(lease.payload)
    return context.writer().write(request, lease.seconds_left).to_payload()


def search(context: WorkerContext, lease: RequestLease) -> dict[str, Any]:
    request = PhotoSearch.from_payload(lease.payload)
    return context.photos.search(request, lease.seconds_left).to_payload()


def download_url(context: WorkerContext, lease: RequestLease) -> dict[str, Any]:
    use = PhotoUse.from_payload(lease.payload)
    return {"url": context.photos.download_url(use, lease.seconds_left)}
