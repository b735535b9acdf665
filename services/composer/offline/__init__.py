"""The writer that needs no network: it picks the best sentences and words of a post."""

from services.composer.offline.document import document_of
from services.composer.offline.post_tags import tags_of
from services.composer.offline.ranking import scores_of
from services.composer.offline.slug import slug_of
from services.composer.offline.summary import summary_of
from services.composer.offline.tweets import tweets_of
from services.composer.post import MetadataField, PlainPost, PostMetadata


def metadata(plain: PlainPost, wanted: frozenset[MetadataField], content_hash: str) -> PostMetadata:
    """Always the same for the same post; `content_hash` is hexadecimal."""
    document = document_of(plain)
    summary = MetadataField.SUMMARY in wanted
    return PostMetadata(
        slug=slug_of(plain, document, content_hash) if MetadataField.SLUG in wanted else None,
        summary=summary_of(plain, document, scores_of(document)) if summary else None,
        tags=tags_of(plain, document) if MetadataField.TAGS in wanted else None,
    )


def tweets(plain: PlainPost) -> tuple[str, ...]:
    document = document_of(plain)
    return tweets_of(plain, document, scores_of(document))
