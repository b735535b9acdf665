"""Errors about the composer, its language model and its stock photos."""

from core.errors.catalogue import (
    forbidden,
    invalid,
    malformed,
    not_found,
    provider_failed,
    too_slow,
    unavailable,
)

COMPOSER_UNKNOWN_PART = malformed(
    "composer.unknown_part",
    "query.includes must be a comma-separated list of: {allowed}.",
    allowed="slug, summary, tags",
)
COMPOSER_ANSWER_UNUSABLE = provider_failed(
    "composer.answer_unusable",
    "The language model returned an invalid response. Try again.",
)
COMPOSER_POST_TOO_SLOW = too_slow(
    "composer.post_too_slow",
    "The post could not be processed within {seconds:g} seconds of CPU time.",
    seconds=20,
)
COMPOSER_POST_UNREADABLE = invalid(
    "composer.post_unreadable", "The post could not be processed because the process crashed."
)

LLM_FAILED = provider_failed("llm.failed", "The language model returned no usable response.")
LLM_TOO_SLOW = too_slow("llm.too_slow", "The language model did not respond in time.")
LLM_UNAVAILABLE = unavailable(
    "llm.unavailable", "The language model is temporarily unavailable. Try again later."
)

STOCKPHOTO_ENDPOINT_NOT_ALLOWED = malformed(
    "stockphoto.endpoint_not_allowed",
    "query.endpoint must be the download endpoint of a photo from a search result.",
)
STOCKPHOTO_REFUSED = malformed(
    "stockphoto.refused", "{provider} rejected the request.", provider="unsplash"
)
STOCKPHOTO_NOT_FOUND = not_found(
    "stockphoto.not_found", "There is no photo with this id on {provider}.", provider="unsplash"
)
STOCKPHOTO_COPIES_FORBIDDEN = forbidden(
    "stockphoto.copies_forbidden",
    "{provider} doesn't allow copies of its photos. Use the URL of the photo.",
    provider="Unsplash",
)
STOCKPHOTO_FAILED = provider_failed(
    "stockphoto.failed", "{provider} returned no usable response.", provider="unsplash"
)
STOCKPHOTO_LIMIT_REACHED = unavailable(
    "stockphoto.limit_reached",
    "The rate limit of {provider} has been reached. Try again later.",
    provider="unsplash",
)
STOCKPHOTO_UNAVAILABLE = unavailable(
    "stockphoto.unavailable",
    "{provider} is temporarily unavailable. Try again later.",
    retry_after=5,
    provider="unsplash",
)
STOCKPHOTO_NOT_CONFIGURED = unavailable(
    "stockphoto.not_configured",
    "Stock photos from {provider} are not configured.",
    retry_after=60,
    provider="unsplash",
)
STOCKPHOTO_TOO_SLOW = too_slow(
    "stockphoto.too_slow", "{provider} did not respond in time.", provider="unsplash"
)
