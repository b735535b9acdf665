"""The OpenAPI document: FastAPI's, with what it can't know (credentials, scopes, errors)."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from api import openapi_samples
from api.auth.requirements import Access, PublicAccess
from api.bodies.url_encoded_forms import FORM
from api.errors import STATUS_OF
from api.middleware.body_limits import body_limit_of
from api.middleware.headers import VERSION_HEADER, VERSIONS
from api.openapi_samples import event_calls
from api.route_classes import JsonRoute, accesses_of
from api.schemas.envelope import InvalidField, Problem
from api.schemas.segments import FILTER_SCHEMAS
from api.schemas.subscriptions import NewSubscription, SignUpForm
from core.errors import mailing, requests
from core.errors.catalogue import ErrorType
from core.scopes import SCOPE_EXPLANATIONS
from core.settings import Settings
from services.feed.catalogue import CATALOGUE
from services.oauth.adapters import AUTHORIZE_PATH, TOKEN_PATH

_DESCRIPTION = """
The back end of a newsletter and publishing platform.

Every successful answer is `{"data": …, "ts": <Unix seconds>}`; every error is
`application/problem+json` with a stable `code`; `/oauth/*` answers as the RFCs of OAuth say. Ids
are integers below 2^53, which every JavaScript number holds exactly; money and credits are numbers
of at most four decimals. Send an API key or an access token as `Authorization: Bearer …`, or the
key in `X-API-Key`; a browser with a session needs neither. Workers do slow work while your call
waits; `Prefer: respond-async` or `Prefer: wait=N` (seconds, at most 60) says for how long.
`Pressroom-Version` asks for the version of this contract that a program was written for.
"""

# The chapters, in the order in which a newcomer reads them.
_TAGS = {
    "Accounts": "Who you are, what your plan allows, and the API keys of your programs.",
    "OAuth": "Access to the accounts of other people, who agree to it and can end it.",
    "Lists": "Mailing lists: people subscribe to them, and their owner sends to them.",
    "Subscriptions": "For subscribers and the forms and mails they use: join, leave, stop mails.",
    "Members": "The people on a list, for its owner.",
    "Fields and tags": "What an owner keeps of members beside name and address.",
    "Bulk members": "Many members at once: add, import from a file, undo an import, export.",
    "Events": "What happened to what is yours, in order, for 30 days.",
    "Webhooks": "What Pressroom sends to URLs that an owner named, by Standard Webhooks.",
    "Jobs": "Slow work: its progress and result, also as a stream; cancel it or try it again.",
    "Attachments": "Images: uploaded, made ready for web and mail, and served.",
    "Composer": "What goes with a post: slug, summary, tags, posts for networks, stock photos.",
    "Credits": "Prepaid credits: the balance and its ledger, charges, and orders of credits.",
    "Operations": "For operators: what this is, whether it works, and its figures.",
}

_SESSION_SCHEME = {
    "type": "apiKey",
    "in": "cookie",
    "name": "__Host-pressroom_session",
    "description": "Of a user who logged in on the page /login; it may do what its user may. "
    "Writes need our own Origin or the header X-CSRF-Token too. Where the API is reached over http "
    "on its own machine, the name has no __Host-.",
}

VERSION_PARAMETER = {
    "name": VERSION_HEADER,
    "in": "header",
    "description": "The version of this contract that the program was written for; without it the "
    "oldest that there is.",
    "schema": {"type": "string", "enum": list(VERSIONS)},
}
VERSION_RESPONSE_HEADER = {
    "description": "The version of this contract by which the call was answered.",
    "schema": {"type": "string"},
    "example": VERSIONS[0],
}


def head(settings: Settings) -> dict[str, Any]:
    """Return the members of the document beside its operations and schemas."""
    base = _base(settings)
    return {
        "info": {
            "title": "Pressroom",
            "version": VERSIONS[0],
            "description": _DESCRIPTION.replace("X-API-Key", settings.api_key_header),
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
            "contact": {"name": "The operator of this server", "url": f"{base}/"},
        },
        "servers": [{"url": base or "/", "description": "This server"}],
        "tags": [{"name": name, "description": description} for name, description in _TAGS.items()],
    }


def security_schemes(settings: Settings) -> dict[str, Any]:
    base = _base(settings)
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
            "description": "Authorization code with PKCE (S256), always.",
            "flows": {"authorizationCode": flow},
        },
    }


def _base(settings: Settings) -> str:
    """Return the public URL; nothing without a deployment, where addresses are relative."""
    return settings.public_base if "public_url" in settings.model_fields_set else ""


_PREFIX = "#/components/schemas/"
# Below these stands a value, not a schema.
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
    """Return every object of the document but for those in values."""
    found: list[dict[str, Any]] = []
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            found.append(node)
            for name, each in node.items():
                # A property may have the name of a value too; what it has is a schema then.
                is_schema = isinstance(each, dict) and "type" in each
                if name not in _VALUES or is_schema:
                    waiting.append(each)
        elif isinstance(node, list):
            waiting.extend(node)
    return found


def refer(document: dict[str, Any], schemas: dict[str, dict[str, Any]]) -> None:
    """Add schemas that refer to one another, and refer to each where its title alone stands."""
    for node in _nodes(document):
        name = node.get("title")
        if isinstance(name, str) and name in schemas and "properties" not in node:
            node.clear()
            node["$ref"] = _PREFIX + name
    document["components"]["schemas"] |= schemas


def share_samples(document: dict[str, Any]) -> None:
    """Keep each error's example once: most errors are those of many operations."""
    shared = document["components"].setdefault("examples", {})
    for operation in operations(document):
        for response in operation["responses"].values():
            problem = response.get("content", {}).get("application/problem+json", {})
            for code, sample in problem.get("examples", {}).items():
                if shared.setdefault(code, sample) == sample:
                    problem["examples"][code] = {"$ref": f"#/components/examples/{code}"}


def operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for path in document["paths"].values() for operation in path.values()]


_REF = "#/components/schemas/Problem"


def _prefer(description: str, example: str) -> dict[str, Any]:
    schema = {"type": "string"}
    shown = {"description": description, "schema": schema, "example": example}
    return {"name": "Prefer", "in": "header", **shown}


# Dependencies read these headers from the whole request, so FastAPI can't know of them.
PREFER_PARAMETER = _prefer(
    "wait=N: seconds to wait, at most 60. respond-async: answer 202 at once.", "wait=30"
)
WAIT_PARAMETER = _prefer(
    "wait=N: seconds to wait at most. Work that takes longer is 504, and not done.", "wait=10"
)
IDEMPOTENCY_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key and request within 24 hours have one effect and one answer.",
    "schema": {"type": "string", "minLength": 16, "maxLength": 255},
}

WAIT_IS_OVER = "The wait ran out; the work goes on. Location leads to its job."

# Errors that several routes have in common.
OF_IDEMPOTENCY = (
    requests.IDEMPOTENCY_KEY_INVALID,
    requests.IDEMPOTENCY_IN_PROGRESS,
    requests.IDEMPOTENCY_KEY_REUSED,
)
OF_QUEUES = (
    requests.QUEUE_TOO_MANY_OF_YOURS,
    requests.QUEUE_OVERLOADED,
    requests.QUEUE_TOO_MANY_WAITERS,
)
OF_OWN_LIST = (mailing.LIST_NOT_OWNER, mailing.LIST_NOT_FOUND)
OF_SELECTION = (
    mailing.SELECTION_UNCLEAR,
    mailing.SEGMENT_NOT_FOUND,
    mailing.SEGMENT_FIELD_RETIRED,
    mailing.SEGMENT_TAG_DELETED,
)

# For a list whose answer is a bare array.
LINK_HEADER: dict[str, Any] = {
    "description": 'With rel="next": the next page; not there at the end',
    "schema": {"type": "string"},
}

Responses = dict[int | str, dict[str, Any]]


def json_request_body(
    schema: dict[str, Any], *, parameters: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return ``openapi_extra`` of a route that reads its JSON body itself."""
    return {
        "parameters": [*parameters],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }


def file_of(*media_types: str) -> dict[str, Any]:
    return {each: {"schema": {"type": "string", "format": "binary"}} for each in media_types}


def text_of(media_type: str, sample: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string"}, "example": sample}}


def array_pages(*errors: ErrorType) -> Responses:
    """Return ``responses`` of a route whose answer is a page of a bare array."""
    page = {"description": "Successful Response", "headers": {"Link": LINK_HEADER}}
    return {200: page, **refuses(requests.CURSOR_INVALID, *errors)}


def accepted_response(model: Any, *errors: ErrorType, description: str = WAIT_IS_OVER) -> Responses:
    """Return ``responses`` of a route that returns 202 with this model for unfinished work."""
    return {202: {"model": model, "description": description}, **refuses(*errors)}


def refuses(*errors: ErrorType) -> Responses:
    responses: Responses = {}
    _add_errors(responses, *errors)
    return responses


def _add_errors(responses: Responses, *errors: ErrorType) -> None:
    """Document these errors beside those that are there already for the same status."""
    for error in errors:
        status = STATUS_OF[error.kind]
        problem = {"schema": {"$ref": _REF}, "examples": {}}
        response = responses.setdefault(str(status), {"description": ""})
        content = response.setdefault("content", {})
        # The operations of OAuth have an answer of their own for the same status.
        examples = content.setdefault("application/problem+json", problem)["examples"]
        sample = openapi_samples.problem_sample(error, status)
        examples[error.code] = {"summary": error.example_sentence, "value": sample}
        if len(content) == 1:
            response["description"] = "; ".join(f"`{code}`" for code in examples)


def document(app: FastAPI, settings: Settings) -> dict[str, Any]:
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = made["components"]
        for model in (Problem, InvalidField, NewSubscription, SignUpForm):
            defined = model.model_json_schema(ref_template="#/components/schemas/{model}")
            defined.pop("$defs", None)
            components["schemas"][model.__name__] = defined
        made["webhooks"] = event_calls(CATALOGUE, components["schemas"])
        named_by_title(made)
        refer(made, FILTER_SCHEMAS)
        tidied(made)
        components["parameters"] = {"Version": VERSION_PARAMETER}
        components["headers"] = {"Version": VERSION_RESPONSE_HEADER}
        components["securitySchemes"] = security_schemes(settings)
        for route in api_routes(app):
            if route.include_in_schema:
                _complete(made, route)
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        share_samples(made)
        first = {"openapi": made["openapi"], **head(settings)}
        app.openapi_schema = {**first, **made, **first}
    return app.openapi_schema


def api_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Yield every operation of the application, with those of included routers."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def access_of(route: RouteContext) -> Access | None:
    """Return the access that the route declares; ``None`` for none, or several."""
    accesses = accesses_of(route.dependant)
    return accesses[0] if len(accesses) == 1 else None


def _complete(made: dict[str, Any], route: RouteContext) -> None:
    known = made["components"]["schemas"]
    for method in route.methods or ():
        operation = made["paths"][route.path_format][method.lower()]
        operation["summary"] = operation["operationId"].replace("_", " ").capitalize()
        _add_common_errors(operation, route, known)
        access = access_of(route)
        if access and access.stranger:
            _add_errors(operation["responses"], requests.RATE_LIMITED)
        operation["security"] = access.docs.security if access else []
        if access and not isinstance(access, PublicAccess):
            operation["description"] += f"\n\n{access.docs.credential}"
            _add_errors(operation["responses"], *access.docs.errors)
        path, parameters = route.path_format or "", operation.get("parameters", [])
        # Generated clients take the parameters of the path first, in its order.
        places = [path.find(f"{{{each.get('name')}}}") for each in parameters]
        order = sorted(range(len(parameters)), key=lambda n: places[n] % (len(path) + 1))
        operation["parameters"] = [
            *(parameters[n] for n in order),
            {"$ref": "#/components/parameters/Version"},
        ]
        operation["responses"] = dict(sorted(operation["responses"].items()))
        # An operation that leads on from forms of browsers answers their mistakes by pages.
        is_for_forms = FORM in operation.get("requestBody", {}).get("content", {})
        if is_for_forms and str(HTTPStatus.SEE_OTHER.value) in operation["responses"]:
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    response["content"]["text/html"] = {"schema": {"type": "string"}}
        for status, response in operation["responses"].items():
            if int(status) < HTTPStatus.BAD_REQUEST:
                reference = {"$ref": "#/components/headers/Version"}
                response.setdefault("headers", {})[VERSION_HEADER] = reference
        openapi_samples.add_samples(operation, known)


def _add_common_errors(
    operation: dict[str, Any], route: RouteContext, known: dict[str, Any]
) -> None:
    responses = operation["responses"]
    # FastAPI's own 422: ours are 400 for path and query, and 422 for JSON bodies.
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]
    invalid = openapi_samples.invalid_parameter(operation.get("parameters", []), known)
    _add_errors(responses, *([invalid] if invalid else []), requests.VERSION_UNKNOWN)
    if isinstance(route.original_route, JsonRoute):
        _add_errors(responses, requests.REQUEST_UNKNOWN)
    body = operation.get("requestBody", {}).get("content", {})
    invalid = openapi_samples.invalid_body(
        body.get("application/json", {}).get("schema", {}), known
    )
    if invalid:
        _add_errors(responses, requests.BODY_NOT_JSON)
        named = responses.get("422", {}).get("content", {}).get("application/problem+json", {})
        # The route may say itself which field.
        if invalid.code not in named.get("examples", {}):
            _add_errors(responses, invalid)
    if body:
        limit = body_limit_of(route.path_format or "")
        _add_errors(responses, limit.error, requests.BODY_TOO_MANY_UNFINISHED)
