"""Lists, subscriptions, challenges and exports."""

from core.refusals.refusal import (
    conflict,
    forbidden,
    invalid,
    invalid_at,
    malformed,
    not_found,
    unavailable,
)

LIST_NOT_FOUND = not_found("list.not_found", "There is no such list.")
LIST_NOT_OWNER = forbidden("list.not_owner", "This list belongs to somebody else.")
LIST_NAME_INVALID = malformed("list.name_invalid", "A list is named by its numeric id or its slug.")
LIST_ID_MISSING = malformed("list_id.missing", "query.list_id is required without a trace_id")
LIST_TITLE = invalid(
    "list.title",
    "A title has 1 to {most} characters in one line, at least one of them visible, and no control "
    "of the text's direction.",
    field="body.title",
    most=200,
)
LIST_SLUG = invalid(
    "list.slug",
    "A slug has 1 to 80 of a-z, 0-9 and '-', begins with a letter or digit and is never all "
    "digits.",
    field="body.slug",
)
LIST_SLUG_TAKEN = conflict("list.slug_taken", "The slug {slug!r} is taken.", slug="weekly")
LIST_IMAGE_URL = invalid(
    "list.image_url",
    "{name} must be an absolute http or https address of at most {most} characters.",
    field="body.{name}",
    name="avatar_image_url",
    most=2048,
)
LIST_CHALLENGE_PROVIDER = invalid(
    "list.challenge_provider",
    "challenge_provider must be one that is set up here: {able}.",
    field="body.challenge_provider",
    able="hcaptcha, turnstile",
)
LIST_REDIRECT_ORIGINS = invalid_at(
    "body.redirect_origins",
    "list.redirect_origins",
    "has at most {most} origins of web pages, each http or https, a host and perhaps a port, "
    "without a path",
    most=10,
)
LIST_CONSENT_WORDINGS = conflict(
    "list.consent_wordings", "A list has at most {most} consent wordings, old ones too.", most=1000
)
LIST_COLOUR = invalid_at(
    "body.colour", "list.colour", "{rule}", rule="is written #rrggbb, such as #9f2d16"
)
LIST_LOGO = invalid_at(
    "body.logo_hash_id",
    "list.logo",
    "must be the hash_id of an image of your own that is ready and not encrypted",
)
LIST_SENDER_NAME = invalid_at(
    "body.sender_name",
    "list.sender_name",
    "has at most {most} characters in one line, at least one of them visible, and no address, "
    "link, number to call, punctuation of mail headers or control of text but joiners",
    most=40,
)
LIST_WORDS = invalid_at(
    "body.{name}",
    "list.words",
    "must be plain text of at most {most:,} characters without links, addresses, numbers to "
    "call and controls of text but joiners",
    name="confirmation_text",
    most=200,
)
LIST_EMAIL_CHANNEL_DISABLED = conflict(
    "list.email_channel_disabled", "This list is not sent by mail."
)

SUBSCRIPTION_NOT_FOUND = not_found(
    "subscription.not_found", "There is no subscription to this list."
)
SUBSCRIPTION_NOT_PENDING = conflict(
    "subscription.not_pending", "This subscription is not waiting any more."
)
SUBSCRIPTION_CHANGED = conflict(
    "subscription.changed", "The subscription changed meanwhile; try again."
)
SUBSCRIPTION_OPTED_OUT = conflict(
    "subscription.opted_out", "This person opted out; only they can take it back."
)
MEMBER_NOT_FOUND = not_found("member.not_found", "There is no such member on this list.")
MEMBER_DENIED = conflict(
    "member.denied", "This list takes no new member with this address: a deny list has it."
)
MEMBER_ELSEWHERE = conflict(
    "member.elsewhere",
    "The list knows the person of this address by another one. Only they can show it this one.",
)
TRANSFER_SAME_LIST = malformed("transfer.same_list", "query.dst_list_id must name another list.")
PLAN_REQUIRED = forbidden("plan.required", "Adding members needs the paid plan.")

FILTER_INVALID = malformed(
    "filter.invalid",
    "{place}: {rule}",
    place="filter.all[1].is",
    rule="must be one of pending, active, unsubscribed, removed",
)
FILTER_NOT_JSON = malformed("filter.invalid", "query.filter: must be JSON", field="query.filter")
FILTER_ALONE = malformed(
    "filter.alone",
    "query.filter: goes with status, limit and cursor; offset, email and premium go without it",
)
FILTER_TOO_SLOW = unavailable(
    "filter.too_slow",
    "The search took too long and was ended. Ask for fewer at a time, or for what is found "
    "quickly: a tag, a day, a value of a field.",
    retry_after=10,
)

LIST_BUSY = unavailable(
    "list.busy", "The list is being changed, by an import perhaps; try again.", retry_after=1
)

TRACE_MISSING = malformed("trace.missing", "A trace_id is required.")
TRACE_AMBIGUOUS = malformed("trace.ambiguous", "The request carries trace ids that differ.")
TRACE_INVALID = forbidden("trace.invalid", "The trace id is not valid for this list.")

CHALLENGE_MISSING = invalid(
    "challenge.missing", "{rules}", rules="body.challenge-token: is required for this list"
)
CHALLENGE_PROVIDER_MISMATCH = invalid_at(
    "body.challenge-provider",
    "challenge.provider_mismatch",
    "this list uses {provider}",
    provider="turnstile",
)
CHALLENGE_FAILED = forbidden("challenge.failed", "The challenge was not passed. Solve a new one.")
CHALLENGE_UNAVAILABLE = unavailable(
    "challenge.unavailable",
    "The challenge can't be checked at the moment. Try again with a new one.",
    retry_after=5,
)
CHALLENGE_NOT_CONFIGURED = unavailable(
    "challenge.not_configured",
    "Challenges of {provider} are not set up here.",
    retry_after=60,
    provider="turnstile",
)

DENY_LIST_ENTRY = invalid(
    "deny_list.entry",
    "{place}: {rule}",
    place="body.domains[0]",
    rule="This is no domain, nor one after '*.'.",
)
DENY_LIST_TOO_LONG = invalid(
    "deny_list.too_long", "A deny list has at most {most:,} entries.", most=100_000
)

FIGURES_RANGE = malformed(
    "figures.range",
    "query.from and query.to name at most {most:,} days, the earlier one first.",
    field="query.from",
    most=1_100,
)

EXPORT_NOT_FOUND = not_found("export.not_found", "There is no such file, or not any more.")
