"""A typed client of the Pressroom API, with a method per operation, retries, OAuth and webhooks."""

from pressroom_client.async_calls import AsyncDownload
from pressroom_client.async_pages import AsyncPage, AsyncPages
from pressroom_client.calls import Accepted, Download
from pressroom_client.client import AsyncPressroom, Pressroom
from pressroom_client.errors import (
    ApiError,
    JobFailed,
    NotReached,
    PressroomError,
    SecretInvalid,
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
from pressroom_client.uploads import File
from pressroom_client.webhooks import verify_webhook

__all__ = [
    "Accepted",
    "ApiError",
    "AsyncDownload",
    "AsyncOAuth",
    "AsyncPage",
    "AsyncPages",
    "AsyncPressroom",
    "AsyncTokenSource",
    "BegunLogin",
    "Download",
    "File",
    "IgnoredNameWarning",
    "JobFailed",
    "NotReached",
    "OAuth",
    "Page",
    "Pressroom",
    "PressroomError",
    "Retries",
    "SecretInvalid",
    "SettingMissing",
    "TokenSource",
    "Tokens",
    "WebhookInvalid",
    "verify_webhook",
]
