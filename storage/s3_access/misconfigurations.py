"""Which setting is wrong, by what the object storage answers."""

import re
from collections.abc import Mapping

from minio.error import S3Error

from core.settings.given_settings import variable_of

_REGION = variable_of("s3_region")
# The first two are AWS's for a signature with another region; a redirect names the right host.
_WRONG_REGION = {
    "AuthorizationHeaderMalformed",
    "BadRequest",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "Redirect",
    "TemporaryRedirect",
}
_ADVICE: Mapping[str, str] = dict.fromkeys(_WRONG_REGION, f"check {_REGION}") | {
    "NoSuchBucket": f"check {variable_of('s3_bucket')}, or make the bucket with pressroom bucket",
    "InvalidAccessKeyId": f"check {variable_of('s3_access_key')}",
    "SignatureDoesNotMatch": f"check {variable_of('s3_secret_key')}",
    "ExpiredToken": "the temporary keys have expired",
}
_EXPECTED = re.compile(r"expecting '([\w-]+)'")


def explained(error: S3Error) -> str:
    """The server's code, and what an operator can do about it."""
    code = str(error.code)
    if code in _WRONG_REGION and (expected := _expected_region(error)):
        return f"{code}; set {_REGION} to {expected}"
    return with_advice(code)


def with_advice(code: str) -> str:
    return f"{code}; {_ADVICE[code]}" if code in _ADVICE else code


def _expected_region(error: S3Error) -> str | None:
    named = error.response.headers.get("x-amz-bucket-region")
    found = _EXPECTED.search(error.message or "")
    return named or (found[1] if found else None)
