"""Writes the generated files of the API clients.

Run `make clients` first, because it builds the OpenAPI document.
"""

import json
from importlib.metadata import version
from pathlib import Path

from clients.generator import python_code, typescript_code
from clients.generator.operations import Json, read_error_codes, read_operations, read_version
from clients.generator.python_methods import ASYNC, SYNC, generate_methods

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "build" / "openapi.json"
PYTHON = ROOT / "clients" / "python"
TYPESCRIPT = ROOT / "clients" / "typescript"


def read_document() -> Json:
    document: Json = json.loads(DOCUMENT.read_text())
    return document


def write_python(document: Json, project: Path) -> None:
    folder = project / "src" / "pressroom_client" / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("")
    python_code.write_types(document, folder / "types.py")
    for name, flavour in (("operations", SYNC), ("async_operations", ASYNC)):
        (folder / f"{name}.py").write_text(generate_methods(document, flavour))
    (folder / "contract.py").write_text(
        python_code.generate_contract(
            read_error_codes(document), read_version(document), version("pressroom")
        )
    )


def write_typescript(document: Json, project: Path) -> None:
    """Write the generated files of the TypeScript client, except the file with the types.

    The npm script ``types`` generates the types from the file ``openapi.json``.
    """
    document = typescript_code.name_schemas(document)
    folder = project / "src" / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "openapi.json").write_text(json.dumps(document))
    (folder / "operations.ts").write_text(
        typescript_code.generate_methods(read_operations(document))
    )
    (folder / "contract.ts").write_text(
        typescript_code.generate_contract(read_error_codes(document), read_version(document))
    )
