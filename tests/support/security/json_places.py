"""The lists and dictionaries in the JSON bodies of all operations, and the load that they cause."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from api.middleware.body_limits import find_body_limit
from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document

MAX_BODY_BYTES = 2_000_000
JSON = {"Content-Type": "application/json"}

Schema = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A list or a dictionary in the body of an operation, such as ``filter.all``."""

    operation: str
    names: tuple[str, ...]
    schema: Schema

    @property
    def is_list(self) -> bool:
        return bool(self.schema["type"] == "array")

    @property
    def max_items(self) -> int | None:
        return self.schema.get("maxItems" if self.is_list else "maxProperties")

    def bodies(self) -> Iterator[bytes]:
        """Yield a request body with as many invalid items as the maximum body size permits.

        If the API documents a maximum number of items for the list or dictionary, yield a second
        request body with exactly this number of items.
        """
        max_bytes = min(MAX_BODY_BYTES, find_body_limit(self.operation.split()[1]).max_bytes)
        yield self._body((max_bytes - 100) // (2 if self.is_list else 12))
        if self.max_items:
            yield self._body(self.max_items)

    def _body(self, items: int) -> bytes:
        value: Any = [1] * items if self.is_list else {f"k{n:05}": [] for n in range(items)}
        for name in reversed(self.names):
            value = {name: value}
        return orjson.dumps(value)


def json_operations() -> Iterator[tuple[str, Schema]]:
    """Yield each operation with a JSON body, such as ``POST /lists``, and the body's schema."""
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema")
            if schema is not None:
                yield f"{method.upper()} {path}", schema


def places() -> Iterator[Place]:
    """Find every list and dictionary in a body that the document describes."""
    for operation, schema in json_operations():
        containers = _containers(openapi_document(), schema, ())
        yield from (Place(operation, *each) for each in containers)


def _containers(
    document: Schema, schema: Schema, names: tuple[str, ...], seen: frozenset[str] = frozenset()
) -> Iterator[tuple[tuple[str, ...], Schema]]:
    if (reference := schema.get("$ref")) is not None:
        if reference in seen:
            return
        seen |= {reference}
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    for part in schema.get("anyOf", ()):
        yield from _containers(document, part, names, seen)
    if schema.get("type") == "array" or (
        schema.get("type") == "object" and "properties" not in schema
    ):
        yield names, schema
    for name, part in schema.get("properties", {}).items():
        yield from _containers(document, part, (*names, name), seen)


class Values(dict[str, object]):
    """Maps names of path parameters to values. The default value of a path parameter is 1."""

    def __missing__(self, _: str) -> int:
        return 1


class ApiUse:
    """The CPU seconds and the memory that the API process of a stack has used since a moment."""

    def __init__(self, stack: Stack) -> None:
        [self._pid] = [each.pid for each in stack.processes if each.name == "api"]
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        # Writing 5 resets the maximum memory of the process (proc_pid_clear_refs, section 5).
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        self._first_bytes = self._read_bytes("VmRSS")
        self._first_seconds = self._read_seconds()

    @property
    def cpu_seconds(self) -> float:
        return self._read_seconds() - self._first_seconds

    @property
    def added_bytes(self) -> int:
        """The largest memory of the process since the moment, minus the memory at the moment."""
        return self._read_bytes("VmHWM") - self._first_bytes

    def _read_seconds(self) -> float:
        times = psutil.Process(self._pid).cpu_times()
        return times.user + times.system

    def _read_bytes(self, name: str) -> int:
        status = Path(f"/proc/{self._pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
        assert match is not None
        return int(match[1]) * 1024
