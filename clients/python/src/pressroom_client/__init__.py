"""A typed client of the Pressroom API, with a method per operation, retries, OAuth and webhooks."""

from pressroom_client.async_calls import AsyncDownload
from pressroom_client.async_pages import AsyncPage, AsyncPages
from pressroom_client.calls import Accepted, Download
from pressroom_client.client import AsyncPressroom, Pressroom
from pressroom_client.errors import (
    AddressUnsupported,
    ApiError,
    AttachmentFailed,
    JobFailed,
    MailDelayed,
    MailRefused,
    NotReached,
    PressroomError,
    SecretInvalid,
    SendingStopped,
    SettingMissing,
    WebhookInvalid,
)
from pressroom_client.ignored_names import IgnoredNameWarning
from pressroom_client.oauth import (
    AsyncOAuth,
    AsyncTokenSource,
    BegunLogin,
    OAuth,
    Tokens,
    TokenSource,
)
from pressroom_client.pages import Page
from pressroom_client.retries import Retries
from pressroom_client.sending import Recipient, SendingReport, read_roster, send_issue
from pressroom_client.uploads import File
from pressroom_client.webhooks import verify_webhook

__all__ = [
    "Accepted",
    "AddressUnsupported",
    "ApiError",
    "AsyncDownload",
    "AsyncOAuth",
    "AsyncPage",
    "AsyncPages",
    "AsyncPressroom",
    "AsyncTokenSource",
    "AttachmentFailed",
    "BegunLogin",
    "Download",
    "File",
    "IgnoredNameWarning",
    "JobFailed",
    "MailDelayed",
    "MailRefused",
    "NotReached",
    "OAuth",
    "Page",
    "Pressroom",
    "PressroomError",
    "Recipient",
    "Retries",
    "SecretInvalid",
    "SendingReport",
    "SendingStopped",
    "SettingMissing",
    "TokenSource",
    "Tokens",
    "WebhookInvalid",
    "read_roster",
    "send_issue",
    "verify_webhook",
]
