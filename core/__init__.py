"""The core layer, which all other packages of Pressroom import.

Pressroom imports ``core`` before any library, so that ``core`` can hide a slow module that a
library would import unnecessarily.
"""

from core.process import absent_modules

absent_modules.hide_metrics()
