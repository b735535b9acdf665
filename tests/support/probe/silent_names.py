"""Runs the `pressroom` command with a name server that never answers for one host name."""

import socket
import time
from typing import Any

from cli.main import main

SILENT = "silent.example"
SILENT_SECONDS = 300.0

_real_getaddrinfo = socket.getaddrinfo


def _resolve(host: object, *arguments: Any, **options: Any) -> Any:
    if host == SILENT:
        time.sleep(SILENT_SECONDS)
    return _real_getaddrinfo(host, *arguments, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    socket.getaddrinfo = _resolve
    main()
