"""Tells texts that begin with what matters, as news do, from those that come to it by and by."""

import re

from services.composer.offline import cues
from services.composer.offline.document import Document

# Texts with sections say in each of them something that matters.
_MAX_HEADINGS = 1
_OPENING_SENTENCES = 2
# As greetings and announcements do.
_ENDS_OPEN = re.compile(r"[,:!，、：！][\"'”’»]*$")
_QUOTES = re.compile('["“”«»„‟「」『』]')


def opens_as_news(document: Document) -> bool:
    """Whether nothing in its opening greets a reader, or speaks of the author."""
    opening = document.sentences[:_OPENING_SENTENCES]
    if not opening or len(document.headings) > _MAX_HEADINGS:
        return False
    if _ENDS_OPEN.search(opening[0].text[-4:]):
        return False
    author = cues.first_person(document.language) | cues.first_person_plural(document.language)
    # The people in the news speak of themselves too, in quotation marks.
    told = (sentence for sentence in opening if not _QUOTES.search(sentence.text))
    return all(author.isdisjoint(word.plain for word in sentence.words) for sentence in told)
