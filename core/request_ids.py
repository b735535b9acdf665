"""The id of a request, which the records and jobs of its work keep, and each of its log lines.

The id is not a parameter: nearly everything that a request does writes a record or a job with it.
It is that of the logging context, which a request has for itself, and in which a worker runs each
job with the id of the request that queued it.
"""

import structlog


def current_request_id() -> str | None:
    """Return the id of the request for whose sake this runs; ``None`` outside of requests."""
    found: str | None = structlog.contextvars.get_contextvars().get("request_id")
    return found
