"""Adds credentials, scopes and errors to the OpenAPI document of FastAPI."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, NamedTuple

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from api.auth.requirements import Access, PublicAccess
from api.bodies.url_encoded_forms import FORM
from api.middleware.admission import is_never_refused
from api.middleware.body_limits import find_body_limit
from api.middleware.versions import VERSION_HEADER, VERSIONS
from api.openapi import samples
from api.openapi.code_samples import add_code_samples
from api.openapi.declarations import add_errors
from api.route_classes import JsonRoute, find_accesses
from api.schemas.envelope import InvalidField, Problem
from api.schemas.segments import FILTER_SCHEMAS
from api.schemas.subscriptions import NewSubscription, SignUpForm
from core.errors import requests
from core.scopes import SCOPE_EXPLANATIONS
from core.settings import Settings
from services.feed.catalogue import CATALOGUE
from services.oauth.adapters import AUTHORIZE_PATH, TOKEN_PATH

_DESCRIPTION = """
The back end of a newsletter and publishing platform.

Every successful response is `{"data": …, "ts": <Unix seconds>}`. Every error is
`application/problem+json` with a stable `code`. `/oauth/*` responds as the OAuth RFCs define.

Ids are integers below 2^53, so JavaScript represents them exactly. Amounts of money and credits are
numbers with at most four decimals.

Send an API key or an access token as `Authorization: Bearer …`. You can also send an API key in
`X-API-Key`. Browsers with a session need neither.

Slow work runs in the background while your request waits. Send `Prefer: respond-async` for an
immediate response, or `Prefer: wait=N` to wait for at most N seconds, up to 60.

Send the version of the API for which your program was written as `Pressroom-Version`.
"""


class Tag(NamedTuple):
    """``guide``: the page of the documentation that explains the chapter."""

    description: str
    guide: str


# The chapters of the API reference, in the order in which a newcomer reads them.
TAGS = {
    "Accounts": Tag("Your account, the quotas of your plan, and your API keys.", "accounts"),
    "OAuth": Tag(
        "Access for apps to the accounts of users. Users can revoke the access at any time.",
        "oauth",
    ),
    "Lists": Tag("Mailing lists, to which people subscribe.", "subscribers"),
    "Subscriptions": Tag(
        "Requests of subscribers: subscribe, unsubscribe, and turn mail off or on.",
        "subscribers",
    ),
    "Members": Tag("The people on a list, for the owner of the list.", "subscribers"),
    "Segments": Tag(
        "Saved filters of a list, for searches, exports, bulk actions and rosters.",
        "filters",
    ),
    "Fields and tags": Tag(
        "Custom data about members, in addition to name and address.",
        "subscribers",
    ),
    "Bulk members": Tag(
        "Add, import, export or change many members, and undo the changes.",
        "subscribers",
    ),
    "Events": Tag(
        "Changes to your lists, files, orders and keys in the last 30 days, in order.",
        "events",
    ),
    "Webhooks": Tag(
        "Events that Pressroom sends to your URLs, as Standard Webhooks defines.",
        "webhooks",
    ),
    "Senders": Tag("Sources of reports about bounces, complaints and unsubscriptions.", "senders"),
    "Jobs": Tag(
        "Progress and results of background work. You can stream, cancel or retry jobs.",
        "conventions",
    ),
    "Attachments": Tag(
        "Images to upload, convert for web pages and e-mails, and serve.",
        "images",
    ),
    "Composer": Tag(
        "Slugs, summaries, tags, social posts and stock photos for your posts.",
        "composer",
    ),
    "Credits": Tag("Prepaid credits with a balance, a ledger, charges and orders.", "credits"),
    "Operations": Tag(
        "Version, health and metrics of the service, for operators.",
        "observability",
    ),
}

_SESSION_SCHEME = {
    "type": "apiKey",
    "in": "cookie",
    "name": "__Host-pressroom_session",
    "description": "The session cookie of a user who logged in at /login. The header "
    "Pressroom-Account chooses one of the accounts that GET /accounts lists. The user's role in "
    "the account decides what the session may do. Requests that change data also need the Origin "
    "of this server or the header X-CSRF-Token. Over http on the local machine, the name has no "
    "prefix __Host-.",
}

VERSION_PARAMETER = {
    "name": VERSION_HEADER,
    "in": "header",
    "description": "The version of the API for which the program was written. Defaults to the "
    "oldest supported version.",
    "schema": {"type": "string", "enum": list(VERSIONS)},
}
VERSION_RESPONSE_HEADER = {
    "description": "The version of the API with which the request was processed.",
    "schema": {"type": "string"},
    "example": VERSIONS[0],
}

_SCHEMA_PREFIX = "#/components/schemas/"
# Keys in the OpenAPI document whose values contain no schemas.
_VALUE_KEYS = frozenset({"example", "examples", "default", "enum", "const", "value"})


def describe_api(settings: Settings) -> dict[str, Any]:
    base = _public_base(settings)
    return {
        "info": {
            "title": "Pressroom",
            "version": VERSIONS[0],
            "description": _DESCRIPTION.replace("X-API-Key", settings.api_key_header),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
            "contact": {"name": "The operator of this server", "url": f"{base}/"},
        },
        "servers": [{"url": base or "/", "description": "This server"}],
        "tags": [
            {"name": name, "description": tag.description, **link_guide(settings, tag.guide)}
            for name, tag in TAGS.items()
        ],
        **link_guide(settings, "README"),
    }


def link_guide(settings: Settings, page: str) -> dict[str, Any]:
    """Return the link to a page of the documentation, or nothing without a documentation site."""
    if settings.docs_url is None:
        return {}
    url = f"{str(settings.docs_url).rstrip('/')}/docs/{page}.html"
    return {"externalDocs": {"description": "Guide", "url": url}}


def describe_security_schemes(settings: Settings) -> dict[str, Any]:
    base = _public_base(settings)
    flow = {
        "authorizationUrl": f"{base}{AUTHORIZE_PATH}",
        "tokenUrl": f"{base}{TOKEN_PATH}",
        "refreshUrl": f"{base}{TOKEN_PATH}",
        "scopes": {str(scope): explanation for scope, explanation in SCOPE_EXPLANATIONS.items()},
    }
    return {
        "bearer": {"type": "http", "scheme": "bearer"},
        "apiKey": {"type": "apiKey", "in": "header", "name": settings.api_key_header},
        "session": _SESSION_SCHEME,
        "oauth2": {
            "type": "oauth2",
            "description": "The authorization code flow. PKCE with S256 is required.",
            "flows": {"authorizationCode": flow},
        },
    }


def _public_base(settings: Settings) -> str:
    """Return an empty string for relative URLs if no public URL is configured."""
    return settings.public_base if "public_url" in settings.model_fields_set else ""


def rename_schemas_to_titles(document: dict[str, Any]) -> None:
    """Rename each schema in the OpenAPI document to its title, for example to ``AttachmentPage``.

    FastAPI derives unreadable names such as ``Page_AttachmentRecord_`` from generic types.
    """
    schemas = document["components"]["schemas"]
    names = {key: schema.get("title", key) for key, schema in schemas.items()}
    assert len(set(names.values())) == len(names), "two schemas have one name"
    document["components"]["schemas"] = {names[key]: schema for key, schema in schemas.items()}
    for node in _schema_nodes(document):
        reference = node.get("$ref", "")
        if isinstance(reference, str) and reference.startswith(_SCHEMA_PREFIX):
            node["$ref"] = _SCHEMA_PREFIX + names[reference.removeprefix(_SCHEMA_PREFIX)]


def clean_schemas(document: dict[str, Any]) -> None:
    """Mark integers as 64-bit, and delete titles, which only repeat the names of schemas."""
    for node in _schema_nodes(document):
        if node.get("type") == "integer":
            # Without a format, client generators use 32 bits, but Pressroom's integers need up to
            # 53 bits.
            node.setdefault("format", "int64")
        is_schema = {"type", "$ref", "anyOf", "properties"} & node.keys()
        if is_schema and isinstance(node.get("title"), str):
            del node["title"]


def _schema_nodes(value: Any) -> list[dict[str, Any]]:
    """Skip examples and default values, because these contain no schemas."""
    nodes: list[dict[str, Any]] = []
    remaining = [value]
    while remaining:
        node = remaining.pop()
        if isinstance(node, dict):
            nodes.append(node)
            for key, member in node.items():
                # A property of a schema may have a name such as ``value`` or ``default``. Don't
                # skip the schema of a property called ``value`` or ``default``.
                is_schema = isinstance(member, dict) and "type" in member
                if key not in _VALUE_KEYS or is_schema:
                    remaining.append(member)
        elif isinstance(node, list):
            remaining.extend(node)
    return nodes


def link_schemas(document: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    """Add recursive schemas to the OpenAPI document, and refer to them by ``$ref``.

    A placeholder is a schema with the title of a recursive schema but without properties. Each
    placeholder in the document is replaced with a ``$ref``.
    """
    for node in _schema_nodes(document):
        name = node.get("title")
        if isinstance(name, str) and name in schemas and "properties" not in node:
            node.clear()
            node["$ref"] = _SCHEMA_PREFIX + name
    document["components"]["schemas"] |= schemas


def share_samples(document: dict[str, Any]) -> None:
    """Move error examples to ``components``, because many operations return the same error."""
    shared = document["components"].setdefault("examples", {})
    for operation in list_operations(document):
        for response in operation["responses"].values():
            problem = response.get("content", {}).get("application/problem+json", {})
            for code, sample in problem.get("examples", {}).items():
                if shared.setdefault(code, sample) == sample:
                    problem["examples"][code] = {"$ref": f"#/components/examples/{code}"}


def describe_defaults(document: dict[str, Any]) -> None:
    """State the defaults of a request body's fields in words.

    Generators such as openapi-typescript treat a field with a ``default`` as required.
    """
    schemas = document["components"]["schemas"]
    remaining = [
        content["schema"]
        for operation in list_operations(document)
        for content in operation.get("requestBody", {}).get("content", {}).values()
    ]
    visited: set[str] = set()
    while remaining:
        nodes = _schema_nodes(remaining.pop())
        for node in nodes:
            for field in node.get("properties", {}).values():
                default = field.pop("default", None)
                if default is not None:
                    description = field.get("description", "").rstrip(".")
                    sentences = (description, f"The default is {json.dumps(default)}.")
                    field["description"] = ". ".join(filter(None, sentences))
            name = str(node.get("$ref", "")).removeprefix(_SCHEMA_PREFIX)
            if name in schemas and name not in visited:
                visited.add(name)
                remaining.append(schemas[name])


def list_operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


def build_document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = document["components"]
        for model in (Problem, InvalidField, NewSubscription, SignUpForm):
            schema = model.model_json_schema(ref_template=_SCHEMA_PREFIX + "{model}")
            schema.pop("$defs", None)
            components["schemas"][model.__name__] = schema
        document["webhooks"] = samples.describe_event_calls(CATALOGUE, components["schemas"])
        rename_schemas_to_titles(document)
        link_schemas(document, FILTER_SCHEMAS)
        clean_schemas(document)
        components["parameters"] = {"Version": VERSION_PARAMETER}
        components["headers"] = {"Version": VERSION_RESPONSE_HEADER}
        components["securitySchemes"] = describe_security_schemes(settings)
        for route in list_api_routes(app):
            if route.include_in_schema:
                _complete_operations(document, route)
        for unused_schema in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused_schema, None)
        share_samples(document)
        describe_defaults(document)
        # Put Pressroom's title, servers and tags at the start of the document, and overwrite the
        # defaults that FastAPI has set.
        head = {"openapi": document["openapi"], **describe_api(settings)}
        app.openapi_schema = {**head, **document, **head}
    return app.openapi_schema


def list_api_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Yield all API routes, including the routes of routers."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def find_access(route: RouteContext) -> Access | None:
    """Return the access rule of the route, or ``None`` if the route has no or several rules."""
    accesses = find_accesses(route.dependant)
    return accesses[0] if len(accesses) == 1 else None


def _complete_operations(document: dict[str, Any], route: RouteContext) -> None:
    schemas = document["components"]["schemas"]
    for method in route.methods or ():
        operation = document["paths"][route.path_format][method.lower()]
        _add_common_errors(operation, route, schemas)
        access = find_access(route)
        if access and access.stranger:
            add_errors(operation["responses"], requests.RATE_LIMITED)
        if not is_never_refused(method, route.path_format or ""):
            add_errors(
                operation["responses"], requests.REQUESTS_TOO_MANY_OF_YOURS, requests.SERVICE_BUSY
            )
        operation["security"] = access.docs.security if access else []
        if access and not isinstance(access, PublicAccess):
            operation["description"] += f"\n\n{access.docs.credential}"
            add_errors(operation["responses"], *access.docs.errors)
        path = route.path_format or ""
        parameters = operation.get("parameters", [])
        # Put path parameters first, in their order in the path, as generated clients do.
        places = [path.find(f"{{{parameter.get('name')}}}") for parameter in parameters]
        # ``find`` returns -1 for a parameter that isn't in the path, and the modulo turns -1 into
        # the last position.
        order = sorted(range(len(parameters)), key=lambda n: places[n] % (len(path) + 1))
        operation["parameters"] = [
            *(parameters[n] for n in order),
            {"$ref": "#/components/parameters/Version"},
        ]
        operation["responses"] = dict(sorted(operation["responses"].items()))
        # If an operation accepts a form and responds with a redirect, its errors are HTML pages for
        # browsers.
        is_for_forms = FORM in operation.get("requestBody", {}).get("content", {})
        if is_for_forms and str(HTTPStatus.SEE_OTHER.value) in operation["responses"]:
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"]["text/html"] = {"schema": {"type": "string"}}
        for status, response in operation["responses"].items():
            if int(status) < HTTPStatus.BAD_REQUEST:
                reference = {"$ref": "#/components/headers/Version"}
                response.setdefault("headers", {})[VERSION_HEADER] = reference
        samples.add_samples(operation, schemas)
        add_code_samples(operation, method.lower(), path, schemas)


def _add_common_errors(
    operation: dict[str, Any], route: RouteContext, schemas: dict[str, Any]
) -> None:
    responses = operation["responses"]
    # FastAPI documents the status 422 for an invalid path or query, but Pressroom returns 400.
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]
    invalid = samples.build_invalid_parameter_error(operation.get("parameters", []), schemas)
    add_errors(responses, *([invalid] if invalid else []), requests.VERSION_UNKNOWN)
    if isinstance(route.original_route, JsonRoute):
        add_errors(responses, requests.REQUEST_UNKNOWN)
    body = operation.get("requestBody", {}).get("content", {})
    invalid = samples.build_invalid_body_error(
        body.get("application/json", {}).get("schema", {}), schemas
    )
    if invalid:
        add_errors(responses, requests.BODY_NOT_JSON)
        problems = responses.get("422", {}).get("content", {}).get("application/problem+json", {})
        # Don't overwrite an example from the route's own documentation.
        if invalid.code not in problems.get("examples", {}):
            add_errors(responses, invalid)
    if body:
        limit = find_body_limit(route.path_format or "")
        add_errors(responses, limit.error, requests.BODY_TOO_MANY_UNFINISHED)
    if "application/json" in body:
        add_errors(responses, requests.BODY_TOO_COMPLEX.fill(**asdict(limit.json_limits)))
