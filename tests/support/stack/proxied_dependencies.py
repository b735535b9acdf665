"""A proxy before each server that a stack needs."""

import contextlib

from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack
from devstack.sandbox import sandbox_settings

_OPENAI = {"PRESSROOM_LLM_PROVIDER": "openai"}


def proxy_each_dependency(
    stack: Stack, opened: contextlib.ExitStack
) -> tuple[dict[str, Proxy], dict[str, str]]:
    """A proxy before each server that the stack needs, and the settings that lead through them."""
    own, sandbox = stack.environment, f"{stack.sandbox_url}/"
    servers = {
        "postgres": own["PRESSROOM_DATABASE_URL"],
        "redis": own["PRESSROOM_REDIS_URL"],
        "s3": f"{own['PRESSROOM_S3_ENDPOINT']}/",
        "mail": f"{own['PRESSROOM_MAIL_URL']}/",
        "model": sandbox,
        "photos": sandbox,
        "payments": sandbox,
    }
    proxies = {name: opened.enter_context(open_proxy(url)) for name, url in servers.items()}
    seen = {name: proxy.url.removesuffix("/") for name, proxy in proxies.items()}
    return proxies, {
        "PRESSROOM_DATABASE_URL": seen["postgres"],
        "PRESSROOM_REDIS_URL": seen["redis"],
        "PRESSROOM_S3_ENDPOINT": seen["s3"],
        "PRESSROOM_MAIL_URL": seen["mail"],
        **sandbox_settings.build_llm_settings(seen["model"], _OPENAI),
        **_OPENAI,
        **sandbox_settings.build_stock_photo_settings(seen["photos"], {}),
        "PRESSROOM_PAYMENTS_SANDBOX_URL": f"{seen['payments']}{sandbox_settings.STRIPE_PREFIX}",
    }
