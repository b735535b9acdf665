from typing import Any

from services.composer.metadata_requests import MetadataRequest
from services.composer.photos import PhotoSearch, PhotoUse
from storage.redis.request_work import RequestLease
from workers.context import WorkerContext


def write(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    request = MetadataRequest.from_payload(question.payload)
    return context.writer().write(request, question.seconds_left).to_payload()


def search(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    request = PhotoSearch.from_payload(question.payload)
    return context.photos.search(request, question.seconds_left).to_payload()


def download_url(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    use = PhotoUse.from_payload(question.payload)
    return {"url": context.photos.download_url(use, question.seconds_left)}
