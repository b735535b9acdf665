"""The form by which an owner sets what a list shows to readers, as the API's body."""

from collections.abc import Iterable

from babel import Locale

from api.access.page_sessions import FormFields
from api.console.typed_forms import TypedForm, body_of_form, text_or_none
from api.schemas.lists import Channel, ListChanges
from core.languages.reader_languages import languages
from models import Attachment, AttachmentStatus

_LOOK = (
    *("colour", "logo_hash_id", "sender_name"),
    *("sign_up_text", "thanks_text", "confirmation_text"),
)


def face_form(shown: Channel) -> TypedForm:
    """The form with what the list has now."""
    return TypedForm({name: getattr(shown, name) or "" for name in _LOOK})


def face_changes(form: FormFields, shown: Channel) -> ListChanges:
    """What the form has other than the list has it now; raises ``body.invalid``.

    What it leaves as it is is not named: a logo that was deleted since must not keep the owner from
    changing the words.
    """
    values = {name: text_or_none(form, name) for name in _LOOK}
    changed = {name: value for name, value in values.items() if value != getattr(shown, name)}
    return body_of_form(ListChanges, changed)


def logo_choices(images: Iterable[Attachment], shown: Channel) -> list[tuple[str, str]]:
    """Of these images those that readers can see, as choices of the form."""
    choices = {
        each.hash_id: each.title or each.original_filename
        for each in images
        if each.status == AttachmentStatus.READY and not each.encrypted
    }
    # One that is older than these, or gone, is shown as long as the list has it.
    if shown.logo_hash_id is not None:
        choices.setdefault(shown.logo_hash_id, shown.logo_hash_id)
    return [("", "None"), *choices.items()]


def language_names() -> dict[str, str]:
    """The readers' languages in English, by the names that HTML has for them."""
    found = ((name, Locale.parse(name, sep="-").get_display_name("en")) for name in languages())
    return {name: words or name for name, words in found}
