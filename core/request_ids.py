"""The id of the current request, for log lines, records and jobs.

The request id is kept in the logging context, because nearly every function would otherwise need it
as a parameter. While a worker runs a job, the current request is the request that enqueued the job.
"""

import structlog


def current_request_id() -> str | None:
    """Return ``None`` if no request caused the current work."""
    request_id: str | None = structlog.contextvars.get_contextvars().get("request_id")
    return request_id
