"""Runs the API with shorter timeouts and smaller limits, so that tests reach them quickly.

``python -m tests.support.probe.impatient_api PORT`` starts the API with shorter timeouts.
"""

import sys

import uvicorn

from api import client_connections
from api.app import create_app
from api.limits import body_budgets
from api.middleware import body_limits
from api.routes import jobs
from core.log_output import configure_logging
from core.settings import load_settings

body_limits.MAX_BODY_SILENCE_SECONDS = 2.0
body_limits.MAX_BODY_SECONDS = 4.0
body_limits.MAX_HELD_SECONDS = 3.0
body_limits.MAX_MEMORY_WAIT_SECONDS = 0.3
# A share is 4 MB of large bodies and 512 KB of small ones.
body_budgets.MAX_HELD_LARGE_BODY_BYTES = 32 * body_budgets.MEGABYTE
body_budgets.MAX_HELD_SMALL_BODY_BYTES = 4 * body_budgets.MEGABYTE
client_connections.MAX_HEAD_SECONDS = 2.0
client_connections.MAX_STALL_SECONDS = 2.0
client_connections.max_connections_per_address = lambda: 250
jobs.CREDENTIAL_CHECK_SECONDS = 1.0

if __name__ == "__main__":
    configure_logging(load_settings())
    app = create_app(load_settings())
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_config=None,
        http=client_connections.BoundedConnection,
        timeout_keep_alive=client_connections.KEEP_ALIVE_SECONDS,
    )
