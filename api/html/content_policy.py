"""Builds the ``Content-Security-Policy`` header of a page."""

import base64
import hashlib
from collections.abc import Mapping


def build_policy(sources: Mapping[str, str], more_sources: Mapping[str, str]) -> str:
    allowed = {
        directive: f"{sources.get(directive, '')} {more_sources.get(directive, '')}".strip()
        for directive in dict.fromkeys((*sources, *more_sources))
    }
    return "; ".join(f"{directive} {text}" for directive, text in allowed.items())


def hash_source(text: str) -> str:
    """Return the hash with which a policy allows an inline style or script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
