"""Puts a proxy in front of each server that a stack needs."""

import contextlib

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack
from devstack.sandbox import sandbox_settings

_OPENAI = {"PRESSROOM_LLM_PROVIDER": "openai"}


def proxy_each_dependency(
    stack: Stack, opened: contextlib.ExitStack
) -> tuple[dict[str, Proxy], dict[str, str]]:
    """Open a proxy in front of each server that the stack uses."""
    environment = stack.environment
    sandbox = f"{stack.sandbox_url}/"
    servers = {
        "postgres": environment["PRESSROOM_DATABASE_URL"],
        "redis": environment["PRESSROOM_REDIS_URL"],
        "s3": f"{environment['PRESSROOM_S3_ENDPOINT']}/",
        "mail": f"{environment['PRESSROOM_MAIL_URL']}/",
        "model": sandbox,
        "photos": sandbox,
        "payments": sandbox,
    }
    proxies = {name: opened.enter_context(open_proxy(url)) for name, url in servers.items()}
    urls = {name: proxy.url.removesuffix("/") for name, proxy in proxies.items()}
    return proxies, {
        "PRESSROOM_DATABASE_URL": urls["postgres"],
        "PRESSROOM_REDIS_URL": urls["redis"],
        "PRESSROOM_S3_ENDPOINT": urls["s3"],
        "PRESSROOM_MAIL_URL": urls["mail"],
        **sandbox_settings.build_llm_settings(urls["model"], _OPENAI),
        **_OPENAI,
        **sandbox_settings.build_stock_photo_settings(urls["photos"], {}),
        "PRESSROOM_PAYMENTS_SANDBOX_URL": f"{urls['payments']}{sandbox_settings.STRIPE_PREFIX}",
    }
