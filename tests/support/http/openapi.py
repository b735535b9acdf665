"""The OpenAPI document of the application, built once in each process that runs tests."""

import json
from functools import cache
from typing import Any

Document = dict[str, Any]


@cache
def openapi_document() -> Document:
    """Return the current document, as programs read it. A test that changes it makes a copy."""
    # Collecting tests imports this module, and no application is needed for that.
    from cli.openapi_document import build_document

    document: Document = json.loads(json.dumps(build_document()))
    return document
