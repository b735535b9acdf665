"""Why readers leave, of which they may choose one. A reason in their own words would be a letter to
the owner, and no owner reads the letters of a hundred thousand."""

from typing import NamedTuple

from core.languages.reader_languages import marked, translated

# Names are in rows, so that they never change.
REASONS = {
    "too_many": marked("It comes too often."),
    "other_topics": marked("It is not, or no more, about what interests me."),
    "never_asked": marked("I never asked for it."),
    "elsewhere": marked("I read it elsewhere."),
    "other": marked("Something else."),
}


class ShownReason(NamedTuple):
    name: str
    text: str


def shown_reasons(language: str) -> list[ShownReason]:
    return [ShownReason(name, translated(language, text)) for name, text in REASONS.items()]
