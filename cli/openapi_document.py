"""Prints the OpenAPI document, as the application builds it under default settings.

``python -m cli.openapi_document`` prints the current document. With ``--release`` it writes
docs/contract/<newest version>.json, with which later documents are compared.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from api.app import create_app
from api.middleware.versions import VERSIONS
from core.settings import Settings

RELEASED = Path(__file__).parents[1] / "docs" / "contract"
# Nothing compares them, and the current document has them.
_TEXTS = {"summary", "description", "example", "examples"}
# A node that is longer gets a line for each of its members.
_MAX_LINE = 600


def current_document() -> dict[str, Any]:
    """Build the document; no setting and no service is needed for it."""
    return create_app(Settings.model_construct()).openapi()


def released_text(document: dict[str, Any]) -> str:
    """Return the document as it is released: without texts and examples, few lines an operation.

    Descriptions of responses stay: OpenAPI requires them, and ours name the codes of errors.
    """
    return _lines(_without_texts(document)) + "\n"


def _without_texts(node: Any, key: str = "") -> Any:
    if isinstance(node, list):
        return [_without_texts(each) for each in node]
    if not isinstance(node, dict):
        return node
    # Their keys are names of fields and numbers of status, none of which is left out.
    if key in {"properties", "responses"}:
        inner = "response" if key == "responses" else ""
        return {name: _without_texts(each, inner) for name, each in node.items()}
    left_out = _TEXTS - {"description"} if key == "response" else _TEXTS
    return {name: _without_texts(each, name) for name, each in node.items() if name not in left_out}


def _lines(node: Any, indent: str = "") -> str:
    line = json.dumps(node, ensure_ascii=False)
    if len(indent + line) <= _MAX_LINE or not isinstance(node, dict | list):
        return line
    inner = indent + " "
    if isinstance(node, list):
        members = [_lines(each, inner) for each in node]
    else:
        members = [f"{json.dumps(name)}: {_lines(each, inner)}" for name, each in node.items()]
    joined = f",\n{inner}".join(members)
    return f"{line[0]}\n{inner}{joined}\n{indent}{line[-1]}"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cli.openapi_document")
    parser.add_argument("--release", action="store_true", help="write docs/contract/<version>.json")
    document = current_document()
    if parser.parse_args(words).release:
        (RELEASED / f"{VERSIONS[0]}.json").write_text(released_text(document))
    else:
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
