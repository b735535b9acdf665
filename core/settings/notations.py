"""Parts of the types of settings: how what an operator wrote is read."""

import re
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from pydantic import AfterValidator, BeforeValidator, SecretStr


def _split(value: object) -> object:
    """The parts of a text between its commas, without the spaces around them."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


COMMA_SEPARATED = BeforeValidator(_split)


def _lines(value: object) -> object:
    """The lines of the file that an absolute path names, without comments and empty ones."""
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    try:
        text = Path(value).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"the file {value} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {value} is no UTF-8 text") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return tuple(line for line in lines if line)


# Before ``COMMA_SEPARATED``, and so after it among the validators.
OR_LINES_OF_A_FILE = BeforeValidator(_lines)

_DENIED = re.compile(r"(?:[^\s@,*]+@|\*\.)?[^\s@,*]+\Z")


def _denied(entries: tuple[str, ...]) -> tuple[str, ...]:
    for number, entry in enumerate(entries, start=1):
        if not _DENIED.match(entry):
            raise ValueError(f"entry {number} is neither an address nor a domain")
    return entries


ADDRESSES_AND_DOMAINS = AfterValidator(_denied)


# Capitals and underscores are of buckets that were made long ago.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]\Z")
_BUCKET_HAS_NOT = re.compile(r"\.\.|\.-|-\.|-s3alias\Z|--ol-s3\Z")


def require_bucket_name(name: str) -> str:
    """The name, if S3 lets a bucket have it. Its client refuses others only at their first use."""
    if not _BUCKET.match(name):
        raise ValueError(
            "a bucket's name has 3 to 63 characters: letters, digits, dots, hyphens and "
            "underscores, and begins and ends with a letter or digit"
        )
    if _BUCKET_HAS_NOT.search(name):
        raise ValueError(
            "a bucket's name has no two dots together and no dot beside a hyphen, and ends "
            "neither with -s3alias nor with --ol-s3"
        )
    if _is_ip_address(name):
        raise ValueError("a bucket's name is no IP address")
    return name


def _is_ip_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


BUCKET_NAME = AfterValidator(require_bucket_name)


def readable_by(parse: Callable[[str], object]) -> AfterValidator:
    """Keeps a setting as it was written, once it could be parsed."""

    def check(value: Any) -> Any:
        if value is not None:
            parse(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(check)
