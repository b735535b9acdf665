"""The core layer, which all other packages of Pressroom import.

``core`` is imported before all libraries, so that ``core`` can hide a module that the libraries
would load.
"""

from core.process import absent_modules

absent_modules.hide_metrics()
