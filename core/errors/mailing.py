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
LIST_FIELDS = invalid_at(
    "body.asked_fields",
    "list.fields",
    "names public fields of yours by their keys, the required ones among the asked ones; "
    "{key!r} is none",
    key="city",
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
    "has at most {most} characters in one line, at least one of them visible, and no punctuation "
    "of mail headers or control of text but joiners",
    most=40,
)
LIST_WORDS = invalid_at(
    "body.{name}",
    "list.words",
    "must be plain text of at most {most:,} characters without controls of text but joiners",
    name="confirmation_text",
    most=200,
)
TEXT_LEADS_AWAY = invalid_at(
    "body.{name}",
    "text.leads_away",
    "strangers read it, so it has no link, domain, e-mail address or number to call, and no mark "
    "of the text's direction",
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
TRANSFER_SAME_LIST = malformed("transfer.same_list", "query.dst_list_id must name another list.")
PLAN_REQUIRED = forbidden("plan.required", "Adding members needs the paid plan.")

FILTER_INVALID = malformed(
    "filter.invalid",
    "{place}: {rule}",
    place="filter.all[1].is",
    rule="must be one of pending, active, unsubscribed, removed",
)
FILTER_NOT_JSON = malformed("filter.invalid", "query.filter: must be JSON", field="query.filter")
FILTER_TOO_LARGE = too_large(
    "filter.too_large",
    "A filter that is kept has at most {most:,} bytes as compact JSON; this one has {size:,}.",
    field="body.filter",
    most=16_384,
    size=18_210,
)
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

FIELD_NOT_FOUND = not_found("field.not_found", "There is no such field.")
FIELD_KEY = invalid_at(
    "body.key",
    "field.key",
    "has 1 to {most} of a-z, 0-9 and '_', and begins with a letter",
    most=40,
)
FIELD_KEY_TAKEN = conflict("field.key_taken", "You have a field with the key {key!r}.", key="city")
FIELD_LABEL = invalid_at(
    "body.label",
    "field.label",
    "has 1 to {most} characters in one line, at least one of them visible, and no control of the "
    "text's direction",
    most=100,
)
FIELD_CHOICES = invalid_at(
    "body.choices",
    "field.choices",
    "a field of the type choice, and no other, has 1 to {most} different choices, each of 1 to "
    "{characters} characters in one line, at least one of them visible, and no control of the "
    "text's direction",
    most=100,
    characters=100,
)
FIELD_TOO_MANY = conflict(
    "field.too_many",
    "An owner has at most {most} fields; {ever} with those that ended.",
    most=50,
    ever=1000,
)
FIELD_VALUE = invalid("field.value", "{rules}", rules="body.fields.city: is no field of this owner")

FIELD_IN_USE = conflict(
    "field.in_use",
    "The type of {key!r} can't be changed while {uses} may use it.",
    key="city",
    uses="the segment 'Readers in Rome'",
)
FIELD_VALUES_UNFIT = conflict(
    "field.values_unfit",
    "{count} of its values are no {type}, such as {named}.",
    count=2,
    type="number",
    named="'Rome', 'Oslo'",
)
FIELD_TOO_MANY_VALUES = conflict(
    "field.too_many_values",
    "A type can be changed while the field has at most {most:,} different values.",
    most=50_000,
)
TAG_NOT_FOUND = not_found("tag.not_found", "There is no such tag on this list.")
TAG_NAME_TAKEN = conflict("tag.name_taken", "The list has a tag {name!r}.", name="VIP")
TAG_IN_USE = conflict(
    "tag.in_use",
    "The tag {name!r} is used by {uses}.",
    name="VIP",
    uses="the segment 'Readers in Rome'",
)
TAG_TOO_MANY = conflict("tag.too_many", "A list has at most {most} tags.", most=10_000)
TAG_TOO_MANY_OF_MEMBER = invalid(
    "tag.too_many_of_member", "A member has at most {most} tags.", most=100
)

SEGMENT_NOT_FOUND = not_found("segment.not_found", "This list has no such segment.")
SEGMENT_NAME = invalid(
    "segment.name",
    "A segment's name has 1 to {most} characters in one line, at least one of them visible, and no "
    "control of text but joiners.",
    field="body.name",
    most=100,
)
SEGMENT_NAME_TAKEN = conflict(
    "segment.name_taken", "This list has a segment named {name!r} already.", name="Readers in Rome"
)
SEGMENT_TOO_MANY = conflict("segment.too_many", "A list has at most {most} segments.", most=500)
SEGMENT_FIELD_RETIRED = conflict(
    "segment.field_retired",
    "The filter names the field {key!r}, which was retired; change the filter.",
    key="city",
)
SEGMENT_TAG_DELETED = conflict(
    "segment.tag_deleted", "The filter names a tag that was deleted; choose the members anew."
)
SELECTION_UNCLEAR = malformed("selection.unclear", "Name either a segment_id or a filter.")

BULK_NOT_FOUND = not_found("bulk.not_found", "There is no such act on members.")
BULK_RUNNING = conflict("bulk.running", "The action still runs; cancel its job first.")
BULK_UNDO_OVER = conflict("bulk.undo_over", "A bulk action can be undone for {days} days.", days=90)
BULK_VALUE = invalid_at(
    "body.value", "bulk.value", "{rule}", rule="set_type takes one of free, silver, gold"
)

EXPORT_STATUS_OF_ROSTER = invalid_at(
    "body.status", "export.status_of_roster", "a roster holds active members alone"
)
EXPORT_BOM = invalid_at(
    "body.bom", "export.bom", "only a CSV file of members can have a byte-order mark"
)

MAIL_UNWRITABLE = provider_failed(
    "mail.refused", "{what} can't be put into a mail.", what="A header"
)
MAIL_RECIPIENT_INVALID = provider_failed("mail.refused", "The recipient is not an e-mail address.")
MAIL_RECIPIENT_NOT_ASCII = provider_failed(
    "mail.refused", "The mail server takes ASCII characters only before the @."
)
MAIL_RECIPIENT_REFUSED = provider_failed(
    "mail.refused", "The mail server refused the recipient ({status}).", status=550
)
MAIL_MESSAGE_REFUSED = provider_failed(
    "mail.refused", "The mail server refused the message ({status}).", status=554
)
MAIL_TOO_LARGE = provider_failed(
    "mail.refused", "The message is too large for the mail server ({status}).", status=552
)

# How many uses of a tag or field an error message lists at most.
_MAX_NAMED_USES = 5


def format_uses(uses: Sequence[Mapping[str, Any]]) -> str:
    """List where a tag or field is used, for an error message.

    Args:
        uses: the ``kind`` and ``name`` of each object that uses the tag or field.
    """
    descriptions = [f"the {use['kind'].replace('_', ' ')} {use['name']!r}" for use in uses]
    more = len(descriptions) - _MAX_NAMED_USES
    return ", ".join(descriptions[:_MAX_NAMED_USES]) + (f" and {more} more" if more > 0 else "")
