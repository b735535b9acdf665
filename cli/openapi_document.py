"""Prints the OpenAPI document under default settings.

``python -m cli.openapi_document > docs/openapi.json`` renews the committed document.
"""

import json
import sys

from api.app import create_app
from core.settings import Settings


def main() -> None:
    # The application serves no request here, so the settings that name services may be empty.
    app = create_app(Settings.model_construct())
    sys.stdout.write(json.dumps(app.openapi(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
