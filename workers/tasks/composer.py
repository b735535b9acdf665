from typing import Any

from services.composer.metadata_requests import MetadataRequest
from services.composer.photos import PhotoSearch, PhotoUse
from storage.request_work import RequestLease
from workers import context
from workers.declaration import TaskSet

TASKS = TaskSet()


@TASKS.request(MetadataRequest.task)
def write(question: RequestLease) -> dict[str, Any]:
    request = MetadataRequest.from_payload(question.payload)
    return context.writing().write(request, question.seconds_left).to_payload()


@TASKS.request(PhotoSearch.task)
def search(question: RequestLease) -> dict[str, Any]:
    request = PhotoSearch.from_payload(question.payload)
    return context.photos().search(request, question.seconds_left).to_payload()


@TASKS.request(PhotoUse.task)
def download_url(question: RequestLease) -> dict[str, Any]:
    use = PhotoUse.from_payload(question.payload)
    return {"url": context.photos().download_url(use, question.seconds_left)}
