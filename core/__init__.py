"""The layer that all other packages import. Python imports this package before any library."""

from core.process import absent_modules

absent_modules.hide_metrics()
