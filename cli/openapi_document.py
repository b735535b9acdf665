"""Prints the OpenAPI document of the API with default settings.

``python -m cli.openapi_document --release`` writes docs/contract/<newest version>.json instead.
Tests compare the current document with the last release's.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from api.app import create_app
from api.middleware.versions import VERSIONS
from core.settings import Settings

RELEASES_FOLDER = Path(__file__).parents[1] / "docs" / "contract"
# The keys that a released document omits. Tests compare the structure of two documents, but not
# their texts and examples.
_TEXT_KEYS = {"summary", "description", "example", "examples"}
# A JSON object or array with more characters than this is written with one line per element.
_MAX_LINE_CHARACTERS = 600


def build_document() -> dict[str, Any]:
    return create_app(Settings.model_construct()).openapi()


def format_release(document: dict[str, Any]) -> str:
    """Return JSON without any texts except descriptions of responses, which OpenAPI requires."""
    return _format_node(_remove_texts(document)) + "\n"


def _remove_texts(node: Any, key: str = "") -> Any:
    if isinstance(node, list):
        return [_remove_texts(each) for each in node]
    if not isinstance(node, dict):
        return node
    # The keys in ``properties`` and ``responses`` are names or status codes, so keep all of them.
    if key in {"properties", "responses"}:
        inner = "response" if key == "responses" else ""
        return {name: _remove_texts(each, inner) for name, each in node.items()}
    omitted = _TEXT_KEYS - {"description"} if key == "response" else _TEXT_KEYS
    return {name: _remove_texts(each, name) for name, each in node.items() if name not in omitted}


def _format_node(node: Any, indent: str = "") -> str:
    line = json.dumps(node, ensure_ascii=False)
    if len(indent + line) <= _MAX_LINE_CHARACTERS or not isinstance(node, dict | list):
        return line
    inner = indent + " "
    if isinstance(node, list):
        members = [_format_node(each, inner) for each in node]
    else:
        members = [
            f"{json.dumps(name)}: {_format_node(each, inner)}" for name, each in node.items()
        ]
    joined = f",\n{inner}".join(members)
    return f"{line[0]}\n{inner}{joined}\n{indent}{line[-1]}"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m cli.openapi_document")
    parser.add_argument("--release", action="store_true", help="write docs/contract/<version>.json")
    document = build_document()
    if parser.parse_args(words).release:
        (RELEASES_FOLDER / f"{VERSIONS[0]}.json").write_text(format_release(document))
    else:
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
