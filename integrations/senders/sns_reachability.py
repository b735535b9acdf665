"""Checks whether this host can download the signing certificates of Amazon SNS."""

from http import HTTPStatus

from integrations.http_client import HttpBounds, HttpClient, HttpFailure, describe_failure
from integrations.senders.sns_topics import SnsTopic, relocate_url

_BOUNDS = HttpBounds(
    max_seconds=3.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024, provider="Amazon SNS"
)


def find_certificate_problem(topic: SnsTopic, base_url: str | None) -> str | None:
    """Request a certificate that doesn't exist, because Pressroom learns the name of a signing
    certificate only from a message of SNS.

    Any response except a server error proves that SNS is reachable.
    """
    client = HttpClient(_BOUNDS)
    try:
        reply = client.send("GET", relocate_url(topic.build_certificate_url("0"), base_url))
    except HttpFailure as failure:
        return describe_failure(failure)
    finally:
        client.close()
    is_outage = reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return f"status {reply.status}" if is_outage else None
