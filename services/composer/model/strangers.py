"""Links and mentions that a post doesn't have: no text that a model wrote may hold any."""

from services.composer.post import PlainPost, PostMetadata
from services.composer.text import hyperlinks
from services.composer.text.characters import one_line

_FAULT = "has a link or a mention that the post doesn't have"


def faults(plain: PlainPost, written: PostMetadata) -> list[str]:
    """Of summary and tags; a slug can hold neither, and tweets have a rule of their own."""
    own = _own(plain)
    found = []
    if written.summary is not None and _foreign(written.summary, own, plain):
        found.append(f"the summary {_FAULT}")
    if any(_foreign(tag, own, plain) for tag in written.tags or ()):
        found.append(f"a tag {_FAULT}")
    return found


def removed(plain: PlainPost, text: str) -> str:
    own = _own(plain)
    cuts = [(start, end) for start, end, link in hyperlinks.link_spans(text) if link not in own]
    cuts += [
        (start, end)
        for start, end, handle in hyperlinks.mention_spans(text)
        if hyperlinks.fold_link(handle) not in plain.mentions
    ]
    for start, end in sorted(cuts, reverse=True):
        text = text[:start] + text[end:]
    return one_line(text)


def _foreign(text: str, own: frozenset[str], plain: PlainPost) -> bool:
    return not (
        hyperlinks.find_links(text) <= own and hyperlinks.find_mentions(text) <= plain.mentions
    )


def _own(plain: PlainPost) -> frozenset[str]:
    shown = "\n".join((plain.title, *plain.headings, *plain.paragraphs))
    return frozenset(map(hyperlinks.canonical_link, plain.links)) | hyperlinks.find_links(shown)
