"""The calls that Pressroom makes: an event sent to a URL that its owner named (``webhooks``)."""

from collections.abc import Mapping
from typing import Any

from services.feed.catalogue import FeedEventType, SubjectKind, TypeEntry

_SCHEMAS = "#/components/schemas/"
_EVENT = "FeedEventRecord"
_TAG = "Webhooks"
_MOMENT = "2026-11-21T09:30:00.000000Z"

# By Standard Webhooks 1.0.
_HEADERS = {
    "webhook-id": (
        "The same for one event and URL, however often it is sent: take each once",
        "evt_48213",
    ),
    "webhook-timestamp": ("When it was sent, in Unix seconds; refuse old ones", "1795253400"),
    "webhook-signature": (
        "Signatures of id, timestamp and body, separated by spaces; one that fits is enough",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}
_ANSWERS = {
    "2XX": {"description": "Any success within the time limit: the event is not sent again."},
    "410": {"description": "The URL takes no events any more, and gets none."},
    "default": {"description": "Anything else, redirects too: the event is sent again later."},
}


def event_calls(
    types: Mapping[FeedEventType, TypeEntry], schemas: dict[str, Any]
) -> dict[str, Any]:
    """An operation for each type of events; adds the schemas of their data to ``schemas``."""
    for entry in types.values():
        schemas[entry.data.__name__] = entry.data.model_json_schema()
    return {kind.value: {"post": _call(kind, entry, schemas)} for kind, entry in types.items()}


def _call(kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]) -> dict[str, Any]:
    words = kind.value.replace(".", " ").replace("_", " ")
    content = {"schema": _body(kind, entry, schemas), "example": _sample(kind, entry)}
    return {
        "operationId": f"receive_{kind.value.replace('.', '_')}",
        "summary": words.capitalize(),
        "description": entry.meaning,
        "tags": [_TAG],
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": said,
                "schema": {"type": "string"},
                "example": sample,
            }
            for name, (said, sample) in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": _ANSWERS,
    }


def _body(kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]) -> dict[str, Any]:
    """The event as ``GET /events`` answers it, of this type and with its own data."""
    event = schemas[_EVENT]
    of_kind = {"type": "string", "const": kind.value}
    data = {"$ref": f"{_SCHEMAS}{entry.data.__name__}"}
    properties = event["properties"] | {"type": of_kind, "data": data}
    return {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": of_kind,
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "When it happened: occurred_at of the event",
            },
            "data": {
                "type": "object",
                "required": event["required"],
                "properties": properties,
                "description": "The event as GET /events answers it",
            },
        },
    }


def _sample(kind: FeedEventType, entry: TypeEntry) -> dict[str, Any]:
    is_of_list = entry.subject in {
        SubjectKind.SUBSCRIPTION,
        SubjectKind.IMPORT,
        SubjectKind.EXPORT,
    }
    event = {
        "id": 48213,
        "type": kind.value,
        "occurred_at": _MOMENT,
        "list_id": 4711 if is_of_list else None,
        "subject": {"kind": entry.subject.value, "id": 90125},
        "data": entry.data.example(),
    }
    return {"type": kind.value, "timestamp": _MOMENT, "data": event}
