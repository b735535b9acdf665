"""Every setting, and the notations in which an operator writes them."""

from core.settings.product_settings import MAY_BE_EMPTY, Settings, SettingsError, load_settings

__all__ = ["MAY_BE_EMPTY", "Settings", "SettingsError", "load_settings"]
