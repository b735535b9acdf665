import argparse
import os

import uvicorn

from devstack import LOOPBACK
from devstack.sandbox import payment_settings
from devstack.sandbox.app import create_app
from devstack.sandbox.providers import STRIPE


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandbox")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--smtp-port", type=int, help="take mail there; not without it")
    parser.add_argument("--webhook-url", help="where events of payments go; nowhere without it")
    given = parser.parse_args()
    payment_settings.give_keys(STRIPE.keys, os.environ, given.webhook_url)
    app = create_app(smtp_port=given.smtp_port)
    uvicorn.run(app, host=LOOPBACK, port=given.port, timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main()
