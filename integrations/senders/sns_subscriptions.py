"""Confirms subscriptions to topics of Amazon SNS.

Amazon documents the call at docs.aws.amazon.com/sns/latest/api/API_ConfirmSubscription.html.
"""

from http import HTTPStatus

from core.errors import ServerFailed
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, describe_failure
from integrations.senders.sns_topics import parse_topic, relocate_url

_SERVER = "Amazon SNS"
_BOUNDS = HttpBounds(
    max_seconds=10.0, max_connect_seconds=3.0, max_reply_bytes=64 * 1024, provider=_SERVER
)


def confirm_subscription(topic_arn: str, token: str, base_url: str | None = None) -> bool:
    """Return whether SNS accepted the token. The function blocks for at most 20 seconds.

    The first request contains ``AuthenticateOnUnsubscribe``, so that only AWS accounts can end the
    subscription. SNS may reject the first request with 403, because Pressroom has no AWS account to
    sign the request. In this case, the second request omits the parameter. If SNS accepts the
    second request, everybody who has the unsubscribe link in a message can end the subscription.

    Raises ``ServerFailed`` if SNS is unreachable.
    """
    topic = parse_topic(topic_arn)
    if topic is None:
        return False
    client = HttpClient(_BOUNDS)
    try:
        for is_protected in (True, False):
            url = topic.build_confirming_url(token, authenticates_unsubscribe=is_protected)
            status = _call(client, relocate_url(url, base_url))
            if status != HTTPStatus.FORBIDDEN:
                break
    finally:
        client.close()
    return status == HTTPStatus.OK


def _call(client: HttpClient, url: str) -> int:
    try:
        reply = client.send("GET", url)
    except HttpFailure as failure:
        raise ServerFailed(_SERVER, describe_failure(failure)) from None
    is_outage = reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if is_outage or reply.status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ServerFailed(_SERVER, f"status {reply.status}")
    return reply.status
