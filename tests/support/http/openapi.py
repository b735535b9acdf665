"""The OpenAPI document of the application, built once in each process that runs tests."""

import json
from functools import cache
from typing import Any

Document = dict[str, Any]


@cache
def openapi_document() -> Document:
    """Return the OpenAPI document of the application as parsed JSON."""
    # Import ``build_document`` only when a test needs it, because the import is slow, and pytest
    # imports this module whenever it collects tests.
    from cli.openapi_document import build_document

    document: Document = json.loads(json.dumps(build_document()))
    return document
