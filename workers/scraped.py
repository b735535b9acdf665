"""A worker's own metrics, for a collector that scrapes each worker by itself."""

import os
from functools import partial
from typing import Any

from celery import signals
from prometheus_client import start_http_server

from core.counters.pool_counts import pool_registry
from core.counters.shared_counts import shared_folder
from core.logging import get_logger
from core.settings import Settings

log = get_logger(__name__)


def connect(settings: Settings) -> None:
    if settings.worker_metrics_address is not None:
        serve = partial(_serve, settings.worker_metrics_address)
        signals.worker_ready.connect(serve, weak=False)


def _serve(address: str, **_: Any) -> None:
    host, port = address.rsplit(":", 1)
    try:
        server, _thread = start_http_server(int(port), host, pool_registry(shared_folder()))
    except (OSError, OverflowError) as error:
        # The work matters more than its figures.
        log.warning("metrics.not_served", address=address, reason=str(error))
        return
    # A process of the pool would keep the port after its worker has gone.
    os.register_at_fork(after_in_child=server.socket.close)
