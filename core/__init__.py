"""The lowest layer, which every other package imports.

``core`` is imported before any library, so that it can hide a slow module that no process needs.
"""

from core.process import absent_modules

absent_modules.hide_metrics()
