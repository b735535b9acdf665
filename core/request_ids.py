"""The id of the current request, which identifies the request in log lines, records and jobs.

The id comes from the logging context, because nearly every function would need the id as a
parameter. A worker runs a job with the id of the request that enqueued the job.
"""

import structlog


def current_request_id() -> str | None:
    """Return the id of the request that caused the current work, or ``None`` without a request."""
    request_id: str | None = structlog.contextvars.get_contextvars().get("request_id")
    return request_id
