"""Generates the types of the Python client, and a module with its error codes and versions.

The package datamodel-code-generator generates the Python types.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from datamodel_code_generator import (
    Formatter,
    InputFileType,
    LiteralType,
    PythonVersion,
    generate,
)
from datamodel_code_generator.enums import DataModelType

from clients.generator.operations import Json, read_operations
from clients.generator.python_methods import inline_types


def write_types(document: Json, target: Path) -> None:
    """Write a module with a typed dictionary for each schema in the API's arguments and results."""
    schemas = {
        name: schema
        for name, schema in document["components"]["schemas"].items()
        if set(schema.get("properties", {})) != {"data", "ts"}
    }
    for operation in read_operations(document):
        schemas |= inline_types(operation)
    reduced = {
        "openapi": document["openapi"],
        "info": document["info"],
        "paths": {},
        "components": {"schemas": schemas},
    }
    with TemporaryDirectory() as folder:
        source = Path(folder) / "types.json"
        source.write_text(json.dumps(reduced))
        generate(
            source,
            input_file_type=InputFileType.OpenAPI,
            output=target,
            output_model_type=DataModelType.TypingTypedDict,
            target_python_version=PythonVersion.PY_310,
            enum_field_as_literal=LiteralType.All,
            use_union_operator=True,
            use_standard_collections=True,
            use_schema_description=True,
            use_field_description=True,
            disable_timestamp=True,
            formatters=[Formatter.BUILTIN],
        )


def generate_contract(codes: list[str], version: str, release: str) -> str:
    """Return the source code of a module with all error codes and the versions of API and client.

    Args:
        version: the version of the API contract, which is a date.
        release: the version of the Python client.
    """
    lines = "".join(f"    {json.dumps(code)},\n" for code in codes)
    versions = f'VERSION = "{version}"\nRELEASE = "{release}"\n'
    return f"from typing import Literal\n\n{versions}\nCode = Literal[\n{lines}]\n"
