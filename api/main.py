"""The entry point of the API server, which serves the application ``app``."""

from api.app import create_app
from core.log_output import configure_logging
from core.settings import load_settings

configure_logging(load_settings())
app = create_app(load_settings())
