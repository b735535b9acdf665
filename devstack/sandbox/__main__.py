import argparse

import uvicorn

from devstack.ports import LOOPBACK
from devstack.sandbox.app import create_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandbox")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--smtp-port", type=int, help="take mail there; not without it")
    given = parser.parse_args()
    app = create_app(smtp_port=given.smtp_port)
    uvicorn.run(app, host=LOOPBACK, port=given.port, timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main()
