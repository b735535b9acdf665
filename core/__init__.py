"""The layer that all other packages import. It is imported before any library is."""

from core.process import absent_modules

absent_modules.hide_metrics()
