"""Which media types count as JSON, and what may stand before the JSON itself."""

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
    """Some editors put one first; RFC 8259 lets a reader pass over it."""
    return body.removeprefix(_BYTE_ORDER_MARK)
