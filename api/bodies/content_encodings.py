"""Reads the header ``Content-Encoding`` of requests whose body may be compressed."""

from starlette.datastructures import Headers

from core.errors.requests import BODY_ENCODING_UNSUPPORTED

# RFC 9110, section 8.4.1.3, defines ``x-gzip`` as another name of ``gzip``.
_GZIP_NAMES = {"gzip", "x-gzip"}


def is_gzip(headers: Headers) -> bool:
    """Raise ``body.encoding_unsupported`` if the body is encoded in any other way."""
    names = ",".join(headers.getlist("content-encoding")).lower().split(",")
    encodings = [name for each in names if (name := each.strip()) not in {"", "identity"}]
    if len(encodings) > 1 or not _GZIP_NAMES.issuperset(encodings):
        raise BODY_ENCODING_UNSUPPORTED()
    return bool(encodings)
