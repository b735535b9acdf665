"""The pages of the owner's console, one module for each part of it."""

from api.routers.console import (
    bulk_acts,
    composer,
    console_assets,
    exports,
    fields,
    finder,
    image_uploads,
    images,
    import_uploads,
    imports,
    list_settings,
    lists,
    members,
    one_member,
    overview,
    segments,
    tags,
)

# The router tries these in order.
RESOURCES = (
    overview,
    finder,
    lists,
    list_settings,
    members,
    one_member,
    segments,
    tags,
    bulk_acts,
    fields,
    import_uploads,
    imports,
    exports,
    image_uploads,
    images,
    composer,
    console_assets,
)
