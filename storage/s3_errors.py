"""Advice to the operator for each error of the object storage."""

import re
from collections.abc import Mapping

from minio.error import S3Error

from core.settings.given_settings import variable_of

_REGION = variable_of("s3_region")
# Error codes that mean a wrong region. AWS uses AuthorizationHeaderMalformed and BadRequest for a
# signature with a wrong region.
_WRONG_REGION_CODES = {
    "AuthorizationHeaderMalformed",
    "BadRequest",
    "IllegalLocationConstraintException",
    "PermanentRedirect",
    "Redirect",
    "TemporaryRedirect",
}
_ADVICE: Mapping[str, str] = dict.fromkeys(_WRONG_REGION_CODES, f"check {_REGION}") | {
    "NoSuchBucket": (
        f"check {variable_of('s3_bucket')}, or create the bucket with `pressroom bucket`"
    ),
    "InvalidAccessKeyId": f"check {variable_of('s3_access_key')}",
    "SignatureDoesNotMatch": f"check {variable_of('s3_secret_key')}",
    "ExpiredToken": "the temporary keys have expired",
}
_EXPECTED_REGION = re.compile(r"expecting '([\w-]+)'")


def explain_error(error: S3Error) -> str:
    code = str(error.code)
    if code in _WRONG_REGION_CODES:
        region = error.response.headers.get("x-amz-bucket-region")
        if not region and (match := _EXPECTED_REGION.search(error.message or "")):
            region = match[1]
        if region:
            return f"{code}; set {_REGION} to {region}"
    return add_advice(code)


def add_advice(code: str) -> str:
    return f"{code}; {_ADVICE[code]}" if code in _ADVICE else code
