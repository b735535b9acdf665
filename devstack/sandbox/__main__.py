import argparse

import uvicorn

from devstack.ports import LOOPBACK
from devstack.sandbox.app import create_app


def main() -> None:
    parser = argparse.ArgumentParser(prog="sandbox")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    uvicorn.run(create_app(), host=LOOPBACK, port=port, timeout_graceful_shutdown=2)


if __name__ == "__main__":
    main()
