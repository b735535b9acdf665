"""The OpenAPI document of the application, built once in each process that runs tests."""

import json
from functools import cache
from typing import Any

Document = dict[str, Any]


@cache
def openapi_document() -> Document:
    """Return the current document as parsed JSON. Tests must copy the document to change it."""
    # Import here, because pytest imports this module during collection, which must stay fast.
    from cli.openapi_document import build_document

    document: Document = json.loads(json.dumps(build_document()))
    return document
