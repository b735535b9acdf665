"""A typed client of the Pressroom API, with a method per operation, retries, OAuth and webhooks."""

from pressroom_client.calls import Accepted, Download
from pressroom_client.client import Pressroom
from pressroom_client.errors import (
    ApiError,
    JobFailed,
    NotReached,
    PressroomError,
    WebhookInvalid,
)
from pressroom_client.oauth import BegunLogin, OAuth, Tokens, TokenSource
from pressroom_client.pages import Page
from pressroom_client.retries import Retries
from pressroom_client.uploads import File
from pressroom_client.webhooks import verify_webhook

__all__ = [
    "Accepted",
    "ApiError",
    "BegunLogin",
    "Download",
    "File",
    "JobFailed",
    "NotReached",
    "OAuth",
    "Page",
    "Pressroom",
    "PressroomError",
    "Retries",
    "TokenSource",
    "Tokens",
    "WebhookInvalid",
    "verify_webhook",
]
