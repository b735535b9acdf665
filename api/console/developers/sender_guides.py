"""The steps with which an owner connects each mail provider, in the provider's own words.

docs/senders.md contains the same steps, and a test compares them. Code and the words of links are
between backticks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from integrations.senders.port import SenderProvider

# An example of a body. Its e-mail address belongs to no member.
EXAMPLE_BODY: Mapping[str, Any] = {
    "type": "delivery.reports",
    "timestamp": "2026-11-29T12:00:00Z",
    "data": {
        "reports": [
            {
                "kind": "bounced",
                "email": "reader@example.com",
                "occurred_at": "2026-11-29T11:59:58Z",
                "bounce": {"class": "hard", "status": "5.1.1"},
            }
        ]
    },
}


class ProviderKey(NamedTuple):
    """The key or topic that an owner copies from the provider to Pressroom.

    ``name``: the name of the form field, which is the field of the API.
    """

    name: str
    label: str
    hint: str

    @property
    def noun(self) -> str:
        return "topic" if self.name == "topic_arn" else "key"


@dataclass(frozen=True)
class SenderGuide:
    """How an owner connects a provider.

    Attributes:
        needs: a sentence for the card of the provider.
        preparations: the steps before the sender is created.
        steps: the steps after the sender was created.
        test_body: the body of a request with which a program tests the last step, or ``None``.
        links: maps words of the steps to the provider's page about them.
    """

    label: str
    needs: str
    key: ProviderKey | None
    preparations: tuple[str, ...]
    steps: tuple[str, ...]
    test_body: Mapping[str, Any] | None = None
    links: Mapping[str, str] = field(default_factory=dict)


_DELIVERY_ID_STEP = "In each mail, set {} to the `delivery_id` from the roster."
_SES_PAGES = "https://docs.aws.amazon.com/ses/latest/dg"
_SNS_PAGES = "https://docs.aws.amazon.com/sns/latest/dg"
_SES_LINKS = {
    "standard topic": f"{_SNS_PAGES}/sns-create-topic.html",
    "publishes its events to the topic": (
        f"{_SES_PAGES}/event-publishing-add-event-destination-sns.html"
    ),
    "Subscribe the sender’s URL": f"{_SNS_PAGES}/sns-http-https-endpoint-as-subscriber.html",
    "Add a dead-letter queue": f"{_SNS_PAGES}/sns-configure-dead-letter-queue.html",
    "Send your mails with the configuration set": (
        f"{_SES_PAGES}/using-configuration-sets-in-email.html"
    ),
}
GUIDES: Mapping[SenderProvider, SenderGuide] = {
    SenderProvider.GENERIC: SenderGuide(
        "Your own program",
        "For your own mail server or any other service. Your program posts the reports.",
        None,
        (),
        (
            (
                "Let your program post its reports to the sender’s URL, each with the "
                "`delivery_id` from the roster."
            ),
            (
                "Sign each request with the secret according to Standard Webhooks. Instead, the "
                "program can send an API key with the scope `sender`."
            ),
            "Post a test report.",
        ),
        EXAMPLE_BODY,
    ),
    SenderProvider.SES: SenderGuide(
        "Amazon SES",
        "You need a topic in Amazon SNS.",
        ProviderKey(
            "topic_arn",
            "SNS topic ARN",
            "The page of the topic shows it, for example "
            "arn:aws:sns:eu-west-1:123456789012:mail-events.",
        ),
        (
            "In Amazon SNS, create a `standard topic` with signature version 2.",
            "In SES, create a configuration set that `publishes its events to the topic`.",
        ),
        (
            (
                "`Subscribe the sender’s URL` to the topic over HTTPS, without raw message "
                "delivery. Pressroom confirms the subscription."
            ),
            (
                "`Add a dead-letter queue` to the subscription, because SNS stops retrying after "
                "an hour."
            ),
            "`Send your mails with the configuration set`.",
            _DELIVERY_ID_STEP.format("the message tag `delivery_id`"),
            "Send a test mail with the configuration set to `success@simulator.amazonses.com`.",
        ),
        links=_SES_LINKS,
    ),
    SenderProvider.POSTMARK: SenderGuide(
        "Postmark",
        "You need a webhook in your message stream.",
        None,
        (),
        (
            "In your Postmark message stream, create a webhook with the sender’s URL.",
            "Enter the user name `pressroom` and the secret as the webhook’s Basic credentials.",
            (
                "Select the webhook’s events: delivery, bounce, spam complaint, open, click and "
                "subscription change."
            ),
            _DELIVERY_ID_STEP.format("`Metadata.delivery_id`"),
            "Send a test event from the page of the webhook.",
        ),
    ),
    SenderProvider.MAILGUN: SenderGuide(
        "Mailgun",
        "You need the HTTP webhook signing key of your account.",
        ProviderKey(
            "signing_key",
            "HTTP webhook signing key",
            "It isn’t one of the API keys for sending.",
        ),
        ("Copy the HTTP webhook signing key of your Mailgun account.",),
        (
            (
                "Add the sender’s URL as a webhook for delivered, opened, clicked, unsubscribed, "
                "complained, temporary failure and permanent failure."
            ),
            _DELIVERY_ID_STEP.format("`v:delivery_id`"),
            "Send a test event from the page of the webhook.",
        ),
    ),
    SenderProvider.SENDGRID: SenderGuide(
        "SendGrid",
        "You need an event webhook that signs its events.",
        ProviderKey(
            "public_key",
            "Verification key",
            "SendGrid shows the key after you switch on “Signed Event Webhook”.",
        ),
        (
            "Create a SendGrid event webhook with any URL.",
            "Switch on “Signed Event Webhook”, and copy the verification key.",
        ),
        (
            "Replace the URL of the event webhook with the sender’s URL.",
            "Let the webhook post all delivery and engagement events.",
            _DELIVERY_ID_STEP.format("`custom_args.delivery_id`")
            + " Never put personal data into `custom_args`.",
            "Test the integration on the page of the webhook.",
        ),
    ),
    SenderProvider.BREVO: SenderGuide(
        "Brevo",
        "You need a transactional webhook, which you create with Brevo’s API.",
        None,
        (),
        (
            "With Brevo’s API, create a transactional webhook that posts to the sender’s URL.",
            (
                "Set the secret as the webhook’s Bearer token "
                '(`auth: {"type": "bearer", "token": …}`).'
            ),
            (
                "Select the webhook’s events: delivered, opened, proxy open, clicked, soft bounce, "
                "hard bounce, invalid, blocked, error, complaint and unsubscribed."
            ),
            _DELIVERY_ID_STEP.format("the header `X-Mailin-custom`"),
            "Send a test mail to yourself.",
        ),
    ),
    SenderProvider.RESEND: SenderGuide(
        "Resend",
        "You need the signing secret of a webhook.",
        ProviderKey("signing_secret", "Signing secret", "It begins with whsec_."),
        (
            (
                "Add a webhook in Resend with any URL. Select all e-mail events and "
                "`contact.updated` for the webhook."
            ),
            "Copy the webhook’s signing secret.",
        ),
        (
            "Replace the URL of the webhook with the sender’s URL.",
            _DELIVERY_ID_STEP.format("the tag `delivery_id`"),
            "Send a test mail to `delivered@resend.dev`.",
        ),
    ),
}
