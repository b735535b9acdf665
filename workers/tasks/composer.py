from typing import Any

from integrations.stock_photos.port import Photo, ProviderName
from services.composer.metadata_requests import Commission
from services.composer.post import Part, Post
from storage.request_work import Question
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.request("composer.write")
def write(question: Question) -> dict[str, Any]:
    asked = question.payload
    commission = Commission(
        Post(asked["title"], asked["content"]), frozenset(map(Part, asked["wanted"]))
    )
    written = context.writing().write(commission, question.seconds_left)
    return {"fields": written.product, "source": written.source}


@TASKS.request("photos.search")
def search(question: Question) -> dict[str, Any]:
    asked = question.payload
    found = context.photos().search(
        ProviderName(asked["provider"]),
        asked["query"],
        page=asked["page"],
        limit=asked["limit"],
        patience=question.seconds_left,
    )
    return {"payload": found.product, "source": found.source}


@TASKS.request("photos.download_url")
def download_url(question: Question) -> dict[str, Any]:
    asked = question.payload
    photo = Photo(asked["id"], asked["mark"])
    provider = ProviderName(asked["provider"])
    return {"url": context.photos().download_url(provider, photo, question.seconds_left)}
