"""Errors about lists, subscriptions, challenges and exports."""

from collections.abc import Mapping, Sequence
from typing import Any

from core.errors.catalogue import (
    conflict,
    forbidden,
    invalid,
    invalid_at,
    malformed,
    not_found,
    provider_failed,
    too_large,
    unavailable,
)

LIST_NOT_FOUND = not_found("list.not_found", "There is no list with this id or slug.")
LIST_NOT_OWNER = forbidden("list.not_owner", "This list belongs to another user.")
LIST_NAME_INVALID = malformed("list.name_invalid", "Use the list's numeric id or its slug.")
LIST_ID_MISSING = malformed(
    "list_id.missing", "query.list_id is required if the request has no trace_id"
)
LIST_TITLE = invalid(
    "list.title",
    "A title must be a single line of 1 to {most} characters with at least one visible character. "
    "Characters that change the text direction are not allowed.",
    field="body.title",
    most=200,
)
LIST_SLUG = invalid(
    "list.slug",
    "A slug must have 1 to 80 characters from a-z, 0-9 and '-'. A slug must start with a letter or "
    "digit, and can't consist of digits only.",
    field="body.slug",
)
LIST_SLUG_TAKEN = conflict(
    "list.slug_taken", "Another list already has the slug {slug!r}.", slug="weekly"
)
LIST_IMAGE_URL = invalid(
    "list.image_url",
    "{name} must be an absolute http or https URL of at most {most} characters.",
    field="body.{name}",
    name="avatar_image_url",
    most=2048,
)
LIST_CHALLENGE_PROVIDER = invalid(
    "list.challenge_provider",
    "challenge_provider must be a configured provider: {able}.",
    field="body.challenge_provider",
    able="hcaptcha, turnstile",
)
LIST_REDIRECT_ORIGINS = invalid_at(
    "body.redirect_origins",
    "list.redirect_origins",
    "must have at most {most} origins, such as https://example.com or http://example.com:8080, "
    "without a path",
    most=10,
)
LIST_CONFIRMED_REDIRECT = invalid_at(
    "body.confirmed_redirect",
    "list.confirmed_redirect",
    "must be a URL whose origin is in the list's redirect_origins or in the operator's "
    "PRESSROOM_REDIRECT_ORIGINS",
)
LIST_FIELDS = invalid_at(
    "body.asked_fields",
    "list.fields",
    "must contain only public fields, and every required field; {key!r} breaks this rule",
    key="city",
)
LIST_CONSENT_WORDINGS = conflict(
    "list.consent_wordings",
    "A list can have at most {most} consent texts, including earlier versions.",
    most=1000,
)
LIST_COLOUR = invalid_at(
    "body.colour", "list.colour", "{rule}", rule="must have the form #rrggbb, such as #9f2d16"
)
LIST_LOGO = invalid_at(
    "body.logo_hash_id",
    "list.logo",
    "must be the hash_id of one of your images that is processed and not encrypted",
)
LIST_SENDER_NAME = invalid_at(
    "body.sender_name",
    "list.sender_name",
    "must be a single line of at most {most} characters with at least one visible character. "
    'Control characters, "=?" and the characters <>"()[]@,;:\\ are not allowed.',
    most=40,
)
LIST_WORDS = invalid_at(
    "body.{name}",
    "list.words",
    "must be plain text of at most {most:,} characters, without control characters",
    name="confirmation_text",
    most=200,
)
TEXT_LEADS_AWAY = invalid_at(
    "body.{name}",
    "text.leads_away",
    "must not contain links, domains, e-mail addresses, phone numbers or characters that change "
    "the text direction, because strangers read this text",
    name="title",
)
TEXT_MISLEADING = invalid_at(
    "body.{name}",
    "text.misleading",
    "{rule}",
    name="label",
    rule="must not ask for passwords, PINs, card numbers or one-time codes",
)
LIST_EMAIL_CHANNEL_DISABLED = conflict(
    "list.email_channel_disabled", "This list does not send e-mail."
)

SUBSCRIPTION_NOT_FOUND = not_found(
    "subscription.not_found", "There is no subscription to this list."
)
SUBSCRIPTION_NOT_PENDING = conflict(
    "subscription.not_pending", "This subscription is no longer pending."
)
SUBSCRIPTION_CHANGED = conflict(
    "subscription.changed", "The subscription was changed by another request. Try again."
)
SUBSCRIPTION_OPTED_OUT = conflict(
    "subscription.opted_out", "This person opted out and can only rejoin by signing up again."
)
ENGAGEMENT_ONLY_BY_PERSON = conflict(
    "engagement.only_by_person",
    "Only the person can allow the list to record opens and clicks. You can only store a no.",
)
SUBSCRIPTION_BOUNCED = conflict(
    "subscription.bounced",
    "Mail to this address bounced again. You can turn mail on only once in 30 days for each "
    "member.",
)
MEMBER_NOT_FOUND = not_found("member.not_found", "This person is not a member of the list.")
MEMBER_DENIED = conflict(
    "member.denied", "This address can't be added because it is on a deny list."
)
TRANSFER_SAME_LIST = malformed("transfer.same_list", "query.dst_list_id must be a different list.")
PLAN_REQUIRED = forbidden("plan.required", "Adding members requires the paid plan.")

FILTER_INVALID = malformed(
    "filter.invalid",
    "{place}: {rule}",
    place="filter.all[1].is",
    rule="must be one of pending, active, unsubscribed, removed",
)
FILTER_NOT_JSON = malformed("filter.invalid", "query.filter: must be JSON", field="query.filter")
FILTER_TOO_LARGE = too_large(
    "filter.too_large",
    "A saved filter can have at most {most:,} bytes as compact JSON. This filter has {size:,} "
    "bytes.",
    field="body.filter",
    most=16_384,
    size=18_210,
)
FILTER_ALONE = malformed(
    "filter.alone",
    "query.filter: can be combined with status, limit and cursor, but not with offset, email and "
    "premium",
)
FILTER_TOO_SLOW = unavailable(
    "filter.too_slow",
    "The search took too long and was cancelled. Set a lower limit, or filter by a tag, a date or "
    "the value of a field.",
    retry_after=10,
)

LIST_BUSY = unavailable(
    "list.busy",
    "Another request or an import is changing the list. Try again in a few seconds.",
    retry_after=1,
)

TRACE_MISSING = malformed("trace.missing", "A trace_id is required.")
TRACE_AMBIGUOUS = malformed(
    "trace.ambiguous", "The request contains more than one trace id. Send only one trace id."
)
TRACE_INVALID = forbidden("trace.invalid", "The trace id is not valid for this list.")

CHALLENGE_MISSING = invalid(
    "challenge.missing", "{rules}", rules="body.challenge-token: is required for this list"
)
CHALLENGE_PROVIDER_MISMATCH = invalid_at(
    "body.challenge-provider",
    "challenge.provider_mismatch",
    "must be {provider} for this list",
    provider="turnstile",
)
CHALLENGE_FAILED = forbidden("challenge.failed", "The challenge failed. Solve a new challenge.")
CHALLENGE_UNAVAILABLE = unavailable(
    "challenge.unavailable",
    "The challenge can't be verified at the moment. Try again with a new challenge.",
    retry_after=5,
)
CHALLENGE_NOT_CONFIGURED = unavailable(
    "challenge.not_configured",
    "Challenges from {provider} are not configured.",
    retry_after=60,
    provider="turnstile",
)

DENY_LIST_ENTRY = invalid(
    "deny_list.entry",
    "{place}: {rule}",
    place="body.domains[0]",
    rule="This is neither a domain nor a pattern such as *.example.com.",
)
DENY_LIST_TOO_LONG = invalid(
    "deny_list.too_long", "A deny list can have at most {most:,} entries.", most=100_000
)

FIGURES_RANGE = malformed(
    "figures.range",
    "query.from must not be later than query.to, and the range can have at most {most:,} days.",
    field="query.from",
    most=1_100,
)

MAILING_NOT_FOUND = not_found("mailing.not_found", "There is no mailing with this id on the list.")
EXPORT_NOT_FOUND = not_found("export.not_found", "The export doesn't exist or has expired.")

FIELD_NOT_FOUND = not_found("field.not_found", "There is no field with this id.")
FIELD_KEY = invalid_at(
    "body.key",
    "field.key",
    "must have 1 to {most} characters from a-z, 0-9 and '_', and start with a letter",
    most=40,
)
FIELD_KEY_TAKEN = conflict(
    "field.key_taken", "You already have a field with the key {key!r}.", key="city"
)
FIELD_LABEL = invalid_at(
    "body.label",
    "field.label",
    "must be a single line of 1 to {most} characters with at least one visible character. "
    "Characters that change the text direction are not allowed.",
    most=100,
)
FIELD_CHOICES = invalid_at(
    "body.choices",
    "field.choices",
    "must have 1 to {most} different choices if the type is 'choice', and must be empty for all "
    "other types. Each choice must be a single line of 1 to {characters} characters with at least "
    "one visible character. Characters that change the text direction are not allowed.",
    most=100,
    characters=100,
)
FIELD_TOO_MANY = conflict(
    "field.too_many",
    "A user can have at most {most} fields, and at most {ever} including deleted fields.",
    most=50,
    ever=1000,
)
FIELD_VALUE = invalid(
    "field.value", "{rules}", rules="body.fields.city: is not a field of this list's owner"
)

FIELD_IN_USE = conflict(
    "field.in_use",
    "The type of the field {key!r} can't be changed, because {uses} may use the field.",
    key="city",
    uses="the segment 'Readers in Rome'",
)
FIELD_VALUES_UNFIT = conflict(
    "field.values_unfit",
    "{count} values can't be converted to {type}, for example {named}.",
    count=2,
    type="number",
    named="'Rome', 'Oslo'",
)
FIELD_TOO_MANY_VALUES = conflict(
    "field.too_many_values",
    "The type of a field with more than {most:,} different values can't be changed.",
    most=50_000,
)
TAG_NOT_FOUND = not_found("tag.not_found", "There is no tag with this id on the list.")
TAG_NAME_TAKEN = conflict(
    "tag.name_taken", "The list already has a tag named {name!r}.", name="VIP"
)
TAG_IN_USE = conflict(
    "tag.in_use",
    "The tag {name!r} is used by {uses}.",
    name="VIP",
    uses="the segment 'Readers in Rome'",
)
TAG_TOO_MANY = conflict("tag.too_many", "A list can have at most {most} tags.", most=10_000)
TAG_TOO_MANY_OF_MEMBER = invalid(
    "tag.too_many_of_member", "A member can have at most {most} tags.", most=100
)

SEGMENT_NOT_FOUND = not_found("segment.not_found", "There is no segment with this id on the list.")
SEGMENT_NAME = invalid(
    "segment.name",
    "The name of a segment must be a single line of 1 to {most} characters with at least one "
    "visible character. Control characters are not allowed.",
    field="body.name",
    most=100,
)
SEGMENT_NAME_TAKEN = conflict(
    "segment.name_taken", "The list already has a segment named {name!r}.", name="Readers in Rome"
)
SEGMENT_TOO_MANY = conflict(
    "segment.too_many", "A list can have at most {most} segments.", most=500
)
SEGMENT_TOO_MANY_WATCHED = conflict(
    "segment.too_many_watched", "An account can watch at most {most} segments.", most=20
)
SEGMENT_TIME_ZONE = invalid(
    "segment.time_zone",
    "The time zone must be an IANA name such as Europe/Berlin.",
    field="body.watch.time_zone",
)
SEGMENT_FIELD_RETIRED = conflict(
    "segment.field_retired",
    "The filter uses the field {key!r}, which was deleted. Change the filter.",
    key="city",
)
SEGMENT_TAG_DELETED = conflict(
    "segment.tag_deleted", "The filter uses a tag that was deleted. Change the filter."
)
SELECTION_UNCLEAR = malformed("selection.unclear", "Send either a segment_id or a filter.")

BULK_NOT_FOUND = not_found("bulk.not_found", "There is no bulk action with this id.")
BULK_RUNNING = conflict(
    "bulk.running", "The bulk action is still running. Cancel the bulk action's job first."
)
BULK_UNDO_OVER = conflict(
    "bulk.undo_over", "A bulk action can only be undone within {days} days.", days=90
)
BULK_VALUE = invalid_at(
    "body.value",
    "bulk.value",
    "{rule}",
    rule="must be one of free, silver, gold for the action set_type",
)

EXPORT_STATUS_OF_ROSTER = invalid_at(
    "body.status",
    "export.status_of_roster",
    "must not be set for a roster, because a roster contains only active members",
)
EXPORT_BOM = invalid_at(
    "body.bom",
    "export.bom",
    "must not be set, because only a CSV file of members can have a byte-order mark",
)

DELIVERY_TOO_MANY = invalid(
    "delivery.too_many", "A request can name at most {most} members.", most=100
)

MAIL_UNWRITABLE = provider_failed(
    "mail.refused", "{what} of the mail contains invalid characters.", what="A header"
)
MAIL_RECIPIENT_INVALID = provider_failed(
    "mail.refused", "The recipient is not a valid e-mail address."
)
MAIL_RECIPIENT_NOT_ASCII = provider_failed(
    "mail.refused", "The mail server accepts only ASCII characters before the @ of an address."
)
MAIL_RECIPIENT_REFUSED = provider_failed(
    "mail.refused", "The mail server rejected the recipient ({status}).", status=550
)
MAIL_MESSAGE_REFUSED = provider_failed(
    "mail.refused", "The mail server rejected the message ({status}).", status=554
)
MAIL_TOO_LARGE = provider_failed(
    "mail.refused", "The message is too large for the mail server ({status}).", status=552
)

# How many uses of a tag or field an error message lists at most.
_MAX_NAMED_USES = 5


def format_uses(uses: Sequence[Mapping[str, Any]]) -> str:
    descriptions = [f"the {use['kind'].replace('_', ' ')} {use['name']!r}" for use in uses]
    more = len(descriptions) - _MAX_NAMED_USES
    return ", ".join(descriptions[:_MAX_NAMED_USES]) + (f" and {more} more" if more > 0 else "")
