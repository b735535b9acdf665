"""The files that the clients have from the OpenAPI document, which `make clients` builds before."""

import json
from importlib.metadata import version
from pathlib import Path

from clients.generator import python_code, typescript_code
from clients.generator.operations import Json, error_codes, operations, version_of

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
    (folder / "operations.py").write_text(python_code.methods(document))
    (folder / "contract.py").write_text(
        python_code.contract(error_codes(document), version_of(document), version("pressroom"))
    )


def write_typescript(document: Json, project: Path) -> None:
    """Its types are made by npm afterwards, from the same document."""
    folder = project / "src" / "generated"
    folder.mkdir(exist_ok=True)
    (folder / "operations.ts").write_text(typescript_code.methods(operations(document)))
    (folder / "contract.ts").write_text(
        typescript_code.contract(error_codes(document), version_of(document))
    )
