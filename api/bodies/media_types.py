"""The media types of request bodies, and the byte order mark that JSON may begin with."""

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def media_type(content_type: str) -> str:
    """``application/json`` of ``Application/JSON; charset=utf-8``."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """``application/json`` or ``application/…+json`` (RFC 6839), whatever its parameters."""
    kind = media_type(content_type)
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def without_byte_order_mark(body: bytes) -> bytes:
    """Some editors write one; RFC 8259 allows a reader to ignore it."""
    return body.removeprefix(_BYTE_ORDER_MARK)
