import argparse
import os

import uvicorn

from devstack import LOOPBACK
from devstack.sandbox.app import create_app
from devstack.sandbox.providers import PROVIDERS, STRIPE, SandboxProvider
from devstack.sandbox.sandbox_settings import set_stripe_keys


def main(providers: tuple[SandboxProvider, ...] = PROVIDERS) -> None:
    parser = argparse.ArgumentParser(prog="sandbox")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--smtp-port", type=int, help="without it, no mail is taken")
    parser.add_argument("--webhook-url", help="where payment events go; without it, nowhere")
    given = parser.parse_args()
    set_stripe_keys(STRIPE.keys, os.environ, given.webhook_url)
    app = create_app(providers, smtp_port=given.smtp_port)
    uvicorn.run(app, host=LOOPBACK, port=given.port, timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main()
