"""Tests of the confirmation of a subscription to a topic of Amazon SNS."""

from urllib.parse import parse_qsl

import pytest
from fastapi import Response

from core.errors import ServerFailed
from devstack.sandbox.senders.amazon_sns import TOPIC_ARN
from integrations.senders.sns_subscriptions import confirm_subscription
from tests.support.senders.sns import FaultySns


def test_subscription_is_confirmed_with_the_protection_that_sns_allows(sns: FaultySns) -> None:
    token = sns.server.build_confirmation("SubscriptionConfirmation")["Token"]
    assert confirm_subscription(TOPIC_ARN, token, sns.base_url)
    assert sns.server.confirmed_topics == [TOPIC_ARN]
    unprotected = {"Action": "ConfirmSubscription", "TopicArn": TOPIC_ARN, "Token": token}
    protected = unprotected | {"AuthenticateOnUnsubscribe": "true"}
    assert [dict(parse_qsl(query)) for query in sns.queries] == [protected, unprotected]


@pytest.mark.parametrize("status", [400, 404, 302])
def test_subscription_is_not_confirmed_if_sns_refuses_the_token(
    sns: FaultySns, status: int
) -> None:
    assert not confirm_subscription(TOPIC_ARN, "unknown&Token=x", sns.base_url)
    sns.replies["/"] = Response(status_code=status, headers={"Location": "/sns/confirmed"})
    assert not confirm_subscription(TOPIC_ARN, "unknown", sns.base_url)
    assert not confirm_subscription("arn:aws:sns:s3:123456789012:a", "unknown", sns.base_url)
    assert set(sns.paths) == {"/"}


@pytest.mark.parametrize("status", [500, 503, 429])
def test_confirmation_can_be_repeated_after_an_outage_of_sns(sns: FaultySns, status: int) -> None:
    sns.replies["/"] = Response(status_code=status)
    with pytest.raises(ServerFailed):
        confirm_subscription(TOPIC_ARN, "t0ken", sns.base_url)
    with pytest.raises(ServerFailed):
        confirm_subscription(TOPIC_ARN, "t0ken", "http://127.0.0.1:9")
