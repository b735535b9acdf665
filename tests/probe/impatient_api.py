"""The API with less patience and room: `python -m tests.probe.impatient_api PORT`."""

import sys

import uvicorn

from api.app import create_app
from api.middleware import body_limits
from api.routers import jobs
from core.logging import configure_logging
from core.settings import load_settings

body_limits.MAX_BODY_SILENCE_SECONDS = 1.0
body_limits.MAX_BODY_SECONDS = 4.0
body_limits.MAX_HELD_BODY_BYTES = 8 * body_limits.MEGABYTE
jobs.CREDENTIAL_SECONDS = 1.0

if __name__ == "__main__":
    configure_logging(load_settings())
    app = create_app(load_settings())
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_config=None)
