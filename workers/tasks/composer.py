from typing import Any

from integrations.stock_photos.port import Photo, PhotoProviderName
from services.composer.metadata_requests import MetadataRequest
from services.composer.post import MetadataField, Post
from storage.redis.request_work import RequestLease
from workers.context import WorkerContext


def write(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    asked = question.payload
    commission = MetadataRequest(
        Post(asked["title"], asked["content"]), frozenset(map(MetadataField, asked["wanted"]))
    )
    written = context.writer().write(commission, question.seconds_left)
    return {"fields": written.product, "source": written.source}


def search(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    asked = question.payload
    found = context.photos.search(
        PhotoProviderName(asked["provider"]),
        asked["query"],
        page=asked["page"],
        limit=asked["limit"],
        patience=question.seconds_left,
    )
    return {"payload": found.product, "source": found.source}


def download_url(context: WorkerContext, question: RequestLease) -> dict[str, Any]:
    asked = question.payload
    photo = Photo(asked["id"], asked["mark"])
    provider = PhotoProviderName(asked["provider"])
    return {"url": context.photos.download_url(provider, photo, question.seconds_left)}
