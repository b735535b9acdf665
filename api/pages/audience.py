"""The pages that readers get, in a language of theirs."""

from functools import partial

from fastapi import Request
from starlette.types import Scope

from api.pages.problems import mark_as_page, problem_page
from core.languages import reader_languages
from core.languages.reader_languages import ENGLISH

_LANGUAGE = "pressroom.language"


def mark_as_reader_page(scope: Scope) -> None:
    """Note that the answer is a page for a reader, a refusal too, and in which language."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-language")
    language = reader_languages.chosen(accepted.decode("latin-1"))
    scope[_LANGUAGE] = language
    mark_as_page(scope, partial(problem_page, language=language))


def reader_language(request: Request) -> str:
    """English for all who are no readers."""
    language: str = request.scope.get(_LANGUAGE, ENGLISH)
    return language
