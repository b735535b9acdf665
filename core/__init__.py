"""The ground that all rooms stand on. It is imported before any library is."""

from core.process import absent_modules

absent_modules.hide()
