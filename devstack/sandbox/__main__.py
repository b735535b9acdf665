import argparse
import os

import uvicorn

from devstack import LOOPBACK
from devstack.sandbox.app import PROVIDERS, STRIPE, SandboxProvider, create_app
from devstack.sandbox.sandbox_settings import set_stripe_keys
from devstack.sandbox.status import MetricsSource


def main(providers: tuple[SandboxProvider, ...] = PROVIDERS) -> None:
    parser = argparse.ArgumentParser(prog="sandbox")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--smtp-port", type=int, help="without it, no mail is taken")
    parser.add_argument("--webhook-url", help="where payment events go; without it, nowhere")
    parser.add_argument("--metrics-url", action="append", default=[], help="what the status shows")
    arguments = parser.parse_args()
    # Every metrics request contains the metrics token. Only the API requires the metrics token.
    token = os.environ.get("PRESSROOM_METRICS_TOKEN")
    set_stripe_keys(STRIPE.keys, os.environ, arguments.webhook_url)
    sources = tuple(MetricsSource(url, token) for url in arguments.metrics_url)
    app = create_app(providers, smtp_port=arguments.smtp_port, sources=sources)
    uvicorn.run(app, host=LOOPBACK, port=arguments.port, timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main()
