"""The pages of the owner's console, one module for each part of it."""

from api.routers.console import (
    console_assets,
    exports,
    image_uploads,
    images,
    import_uploads,
    imports,
    list_settings,
    lists,
    overview,
)

# The router tries these in order.
RESOURCES = (
    overview,
    lists,
    list_settings,
    import_uploads,
    imports,
    exports,
    image_uploads,
    images,
    console_assets,
)
