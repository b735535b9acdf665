"""The command line, where the name of one host is asked of a name server that says nothing."""

import socket
import time
from typing import Any

from cli.main import main

SILENT = "silent.example"
SILENT_SECONDS = 300.0

_look_up = socket.getaddrinfo


def _wait_for_an_answer(host: object, *more: Any, **options: Any) -> Any:
    if host == SILENT:
        time.sleep(SILENT_SECONDS)
    return _look_up(host, *more, **options)  # type: ignore[arg-type]


if __name__ == "__main__":
    socket.getaddrinfo = _wait_for_an_answer
    main()
