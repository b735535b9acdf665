"""The pages that readers get, in a language of theirs."""

from fastapi import Request
from starlette.types import Scope

from api.pages.problems import mark_as_page
from core.languages import reader_languages
from core.languages.reader_languages import ENGLISH

_LANGUAGE = "pressroom.language"


def mark_as_reader_page(scope: Scope) -> None:
    """Note that the answer is a page for a reader, a refusal too, and in which language."""
    mark_as_page(scope)
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-language")
    scope[_LANGUAGE] = reader_languages.chosen(accepted.decode("latin-1"))


def language_of_scope(scope: Scope) -> str:
    """English for all who are no readers."""
    language: str = scope.get(_LANGUAGE, ENGLISH)
    return language


def reader_language(request: Request) -> str:
    return language_of_scope(request.scope)
