"""The settings of all processes, and the formats of their values."""

from core.errors import SettingsError
from core.settings.given_settings import MAY_BE_EMPTY, read_settings
from core.settings.product_settings import Settings, load_settings

__all__ = ["MAY_BE_EMPTY", "Settings", "SettingsError", "load_settings", "read_settings"]
