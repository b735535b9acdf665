"""Adds samples of code to the operations in the OpenAPI document."""

import json
import shlex
from typing import Any
from urllib.parse import urlencode

from api.bodies.url_encoded_forms import FORM
from api.openapi.samples import JsonSchema, build_sample, resolve_schema

_KEY = "Authorization: Bearer $KEY"
_BYTES = "application/octet-stream"
_MULTIPART = "multipart/form-data"
_JSON = "application/json"
# The tag of operations that only monitoring calls. Clients have no methods for them.
_MONITORING_TAG = "Operations"


def add_code_samples(
    operation: dict[str, Any], method: str, path: str, schemas: dict[str, JsonSchema]
) -> None:
    parameters = [each for each in operation["parameters"] if each.get("required")]
    values = {
        each["name"]: each.get("example", build_sample(each["schema"], schemas, name=each["name"]))
        for each in parameters
    }
    in_path = [each["name"] for each in parameters if each["in"] == "path"]
    in_query = [each["name"] for each in parameters if each["in"] == "query"]
    content = {
        media_type: _choose_example(body, schemas, is_json=media_type == _JSON)
        for media_type, body in operation.get("requestBody", {}).get("content", {}).items()
    }
    url = path.format(**{name: values[name] for name in in_path})
    if in_query:
        url += f"?{urlencode({name: values[name] for name in in_query})}"
    operation["x-codeSamples"] = [
        {"lang": "Shell", "label": "curl", "source": _write_curl(operation, method, url, content)}
    ]
    if _MONITORING_TAG in operation["tags"]:
        return
    operation["x-codeSamples"] += [
        {
            "lang": "Python",
            "source": _write_python(
                operation, [values[each] for each in in_path + in_query], content
            ),
        },
        {
            "lang": "JavaScript",
            "source": _write_javascript(
                operation, {name: values[name] for name in in_path + in_query}, content
            ),
        },
    ]


def _choose_example(body: dict[str, Any], schemas: dict[str, JsonSchema], *, is_json: bool) -> Any:
    """Return the example of a request body. A JSON example omits optional fields, unless all
    fields are optional.
    """
    example = body.get("example")
    if "examples" in body:
        example = next(iter(body["examples"].values()))["value"]
    required = resolve_schema(body["schema"], schemas).get("required", ())
    if is_json and isinstance(example, dict) and required:
        return {name: value for name, value in example.items() if name in required}
    return example


def _write_curl(operation: dict[str, Any], method: str, url: str, content: dict[str, Any]) -> str:
    words = ["curl"]
    if method not in {"get", "post"} or (method == "post" and not content):
        words += ["-X", method.upper()]
    if operation["security"]:
        words += ["-H", f'"{_KEY}"']
    if _BYTES in content:
        words += ["-H", f"'Content-Type: {_BYTES}'", "--data-binary", "@members.csv"]
    elif _JSON in content:
        words += ["--json", shlex.quote(json.dumps(content[_JSON], ensure_ascii=False))]
    elif FORM in content:
        words += ["-d", shlex.quote(urlencode(content[FORM]))]
    elif _MULTIPART in content:
        words += ["-F", "file=@photo.jpg"]
    return " ".join([*words, f'"$API{url}"'])


def _write_python(operation: dict[str, Any], values: list[Any], content: dict[str, Any]) -> str:
    arguments = [*map(repr, values)]
    if _BYTES in content or _MULTIPART in content:
        arguments.append('"members.csv"' if _BYTES in content else '"photo.jpg"')
    elif content:
        arguments.append(repr(content.get(_JSON, content.get(FORM))))
    return f"client.{operation['operationId']}({', '.join(arguments)})"


def _write_javascript(
    operation: dict[str, Any], values: dict[str, Any], content: dict[str, Any]
) -> str:
    arguments = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    if _BYTES in content or _MULTIPART in content:
        name = "members.csv" if _BYTES in content else "photo.jpg"
        arguments.append(f'file: await fromPath("{name}")')
    elif content:
        body = json.dumps(content.get(_JSON, content.get(FORM)), ensure_ascii=False)
        arguments.append(f"body: {body}")
    text = f"{{ {', '.join(arguments)} }}" if arguments else ""
    return f"await pressroom.{_to_camel_case(operation['operationId'])}({text})"


def _to_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
