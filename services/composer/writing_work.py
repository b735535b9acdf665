"""Registers the writing of metadata as request-only work of the workers."""

from typing import Any

from services.composer.requests import MetadataRequest
from services.jobs.kinds import register_request_kind
from storage.redis.request_work import RequestLease
from storage.resources import Resources


def _write(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    # Imported here, because the writers' libraries need seconds and memory. Workers of other queues
    # must not load them.
    from services.composer import writers

    return writers.answer(resources, lease)


register_request_kind(MetadataRequest.kind, _write)
