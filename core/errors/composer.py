"""Errors about the composer, its language model and its stock photos."""

from core.errors.catalogue import (
    invalid,
    malformed,
    not_found,
    provider_failed,
    too_slow,
    unavailable,
)

COMPOSER_UNKNOWN_PART = malformed(
    "composer.unknown_part",
    "query.includes may name {allowed}, separated by commas.",
    allowed="slug, summary, tags",
)
COMPOSER_ANSWER_UNUSABLE = provider_failed(
    "composer.answer_unusable", "The language model's answer breaks the rules of this output."
)
COMPOSER_POST_TOO_SLOW = too_slow(
    "composer.post_too_slow",
    "Reading the post took longer than {seconds:g} seconds.",
    seconds=20,
)
COMPOSER_POST_UNREADABLE = invalid(
    "composer.post_unreadable", "The post could not be read, because the process crashed."
)

LLM_FAILED = provider_failed("llm.failed", "The language model gave no usable answer.")
LLM_TOO_SLOW = too_slow("llm.too_slow", "The language model took too long.")
LLM_UNAVAILABLE = unavailable(
    "llm.unavailable", "The language model takes no questions at the moment."
)

STOCKPHOTO_ENDPOINT_NOT_ALLOWED = malformed(
    "stockphoto.endpoint_not_allowed",
    "query.endpoint must be a photo's download endpoint, as the search gave it.",
)
STOCKPHOTO_REFUSED = malformed(
    "stockphoto.refused", "{provider} makes no sense of this request.", provider="unsplash"
)
STOCKPHOTO_NOT_FOUND = not_found(
    "stockphoto.not_found", "{provider} has no such photo.", provider="unsplash"
)
STOCKPHOTO_FAILED = provider_failed(
    "stockphoto.failed", "{provider} gave no usable answer.", provider="unsplash"
)
STOCKPHOTO_LIMIT_REACHED = unavailable(
    "stockphoto.limit_reached",
    "{provider} takes no more requests at the moment.",
    provider="unsplash",
)
STOCKPHOTO_UNAVAILABLE = unavailable(
    "stockphoto.unavailable", "{provider} can't be reached.", retry_after=5, provider="unsplash"
)
STOCKPHOTO_NOT_CONFIGURED = unavailable(
    "stockphoto.not_configured",
    "Stock photos of {provider} are not set up here.",
    retry_after=60,
    provider="unsplash",
)
STOCKPHOTO_TOO_SLOW = too_slow(
    "stockphoto.too_slow", "{provider} did not answer in time.", provider="unsplash"
)
