"""``python -m clients.generator`` writes what the clients have from the OpenAPI document.

The types of the TypeScript client are made by npm afterwards, from the same document.
"""

import json
from pathlib import Path

from clients.generator import python_code, typescript_code
from clients.generator.operations import error_codes, operations

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "openapi.json"
PYTHON = ROOT / "clients" / "python" / "src" / "pressroom_client" / "generated"
TYPESCRIPT = ROOT / "clients" / "typescript" / "src" / "generated"


def main() -> None:
    document = json.loads(DOCUMENT.read_text())
    found = operations(document)
    for folder in (PYTHON, TYPESCRIPT):
        folder.mkdir(exist_ok=True)
    (PYTHON / "__init__.py").write_text("")
    python_code.write_types(document, PYTHON / "types.py")
    (PYTHON / "operations.py").write_text(python_code.methods(document))
    (PYTHON / "codes.py").write_text(python_code.codes(error_codes(document)))
    (TYPESCRIPT / "operations.ts").write_text(typescript_code.methods(found))
    (TYPESCRIPT / "codes.ts").write_text(typescript_code.codes(error_codes(document)))


if __name__ == "__main__":
    main()
