"""The document's schemas in the form in which generators of clients read them best."""

from typing import Any

_PREFIX = "#/components/schemas/"
# What stands below these is a value and no schema.
_VALUES = frozenset({"example", "examples", "default", "enum", "const", "value"})


def named_by_title(document: dict[str, Any]) -> None:
    """Give each schema the name that its type says (``AttachmentPage``).

    The framework makes names such as ``Page_AttachmentRecord_`` of generic types.
    """
    schemas = document["components"]["schemas"]
    names = {key: schema.get("title", key) for key, schema in schemas.items()}
    assert len(set(names.values())) == len(names), "two schemas have one name"
    document["components"]["schemas"] = {names[key]: each for key, each in schemas.items()}
    for node in _nodes(document):
        reference = node.get("$ref", "")
        if isinstance(reference, str) and reference.startswith(_PREFIX):
            node["$ref"] = _PREFIX + names[reference.removeprefix(_PREFIX)]


def tidied(document: dict[str, Any]) -> None:
    """Say that whole numbers have up to 64 bits, and drop the titles that only repeat a name."""
    for node in _nodes(document):
        if node.get("type") == "integer":
            # All are below 2**53; without a format, generators take them for 32 bits.
            node.setdefault("format", "int64")
        is_schema = {"type", "$ref", "anyOf", "properties"} & node.keys()
        if is_schema and isinstance(node.get("title"), str):
            del node["title"]


def _nodes(value: Any) -> list[dict[str, Any]]:
    """Every object of the document but for those in values."""
    found: list[dict[str, Any]] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found.append(node)
            waiting.extend(each for name, each in node.items() if not _is_value(name, each))
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def _is_value(name: str, value: object) -> bool:
    # A property may have one of these names too; its value is a schema then.
    return name in _VALUES and not (isinstance(value, dict) and "type" in value)


def refer(document: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    """Add schemas that refer to one another, and refer to each where its title alone stands."""
    for node in _nodes(document):
        name = node.get("title")
        if isinstance(name, str) and name in schemas and "properties" not in node:
            node.clear()
            node["$ref"] = _PREFIX + name
    document["components"]["schemas"] |= schemas


def share_samples(document: dict[str, Any]) -> None:
    """Keep each refusal's example once: most refusals are those of many operations."""
    shared = document["components"].setdefault("examples", {})
    for operation in operations(document):
        for response in operation["responses"].values():
            problem = response.get("content", {}).get("application/problem+json", {})
            for code, sample in problem.get("examples", {}).items():
                if shared.setdefault(code, sample) == sample:
                    problem["examples"][code] = {"$ref": f"#/components/examples/{code}"}


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]
