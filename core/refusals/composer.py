"""The composer, its language model and its stock photos."""

from core.errors import Kind
from core.refusals.refusal import Refusal

COMPOSER_UNKNOWN_PART = Refusal(
    Kind.MALFORMED,
    "composer.unknown_part",
    "query.includes may name {allowed}, separated by commas.",
    examples={"allowed": "slug, summary, tags"},
)
COMPOSER_ANSWER_UNUSABLE = Refusal(
    Kind.PROVIDER_FAILED,
    "composer.answer_unusable",
    "The language model's answer breaks the rules of this output.",
)

LLM_FAILED = Refusal(
    Kind.PROVIDER_FAILED, "llm.failed", "The language model gave no usable answer."
)
LLM_TOO_SLOW = Refusal(Kind.TOO_SLOW, "llm.too_slow", "The language model took too long.")
LLM_UNAVAILABLE = Refusal(
    Kind.UNAVAILABLE, "llm.unavailable", "The language model takes no questions at the moment."
)

STOCKPHOTO_ENDPOINT_NOT_ALLOWED = Refusal(
    Kind.MALFORMED,
    "stockphoto.endpoint_not_allowed",
    "query.endpoint must be a photo's download endpoint, as the search gave it.",
)
STOCKPHOTO_REFUSED = Refusal(
    Kind.MALFORMED,
    "stockphoto.refused",
    "{provider} makes no sense of this request.",
    examples={"provider": "unsplash"},
)
STOCKPHOTO_NOT_FOUND = Refusal(
    Kind.NOT_FOUND,
    "stockphoto.not_found",
    "{provider} has no such photo.",
    examples={"provider": "unsplash"},
)
STOCKPHOTO_FAILED = Refusal(
    Kind.PROVIDER_FAILED,
    "stockphoto.failed",
    "{provider} gave no usable answer.",
    examples={"provider": "unsplash"},
)
STOCKPHOTO_LIMIT_REACHED = Refusal(
    Kind.UNAVAILABLE,
    "stockphoto.limit_reached",
    "{provider} takes no more requests at the moment.",
    examples={"provider": "unsplash"},
)
STOCKPHOTO_UNAVAILABLE = Refusal(
    Kind.UNAVAILABLE,
    "stockphoto.unavailable",
    "{provider} can't be reached.",
    retry_after=5,
    examples={"provider": "unsplash"},
)
STOCKPHOTO_NOT_CONFIGURED = Refusal(
    Kind.UNAVAILABLE,
    "stockphoto.not_configured",
    "Stock photos of {provider} are not set up here.",
    retry_after=60,
    examples={"provider": "unsplash"},
)
STOCKPHOTO_TOO_SLOW = Refusal(
    Kind.TOO_SLOW,
    "stockphoto.too_slow",
    "{provider} did not answer in time.",
    examples={"provider": "unsplash"},
)
