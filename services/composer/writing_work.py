"""Registers the writing of metadata as request-only work of the workers."""

from typing import Any

from services.composer.requests import MetadataRequest
from services.jobs.kinds import register_request_kind
from storage.redis.request_work import RequestLease
from storage.resources import Resources


def _write(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    # Import the module here, because the libraries of the writers need much time and memory.
    # Workers of other queues must not load these libraries.
    from services.composer import writers

    return writers.answer_request(resources, lease)


register_request_kind(MetadataRequest.kind, _write)
