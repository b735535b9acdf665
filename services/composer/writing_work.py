"""Registers the function with which workers process requests for metadata and tweets."""

from typing import Any

from services.composer.requests import MetadataRequest
from services.jobs.kinds import register_request_kind
from storage.redis.request_work import RequestLease
from storage.resources import Resources


def _write(resources: Resources, lease: RequestLease) -> dict[str, Any]:
    # Import ``writers`` only when a request arrives, because the libraries that it imports take
    # much time and memory.
    from services.composer import writers

    return writers.answer_request(resources, lease)


register_request_kind(MetadataRequest.kind, _write)
