"""The forms by which an owner makes a list and changes one, as the API's bodies."""

from typing import Any

from api.access.page_sessions import FormFields
from api.console.typed_forms import TypedForm, body_of_form, lines_of, text_or_none
from api.schemas.lists import Channel, ListChanges, NewList
from core.refusals.mailing import LIST_SLUG_TAKEN

# Beside which field a refusal stands that names none.
PLACES = {LIST_SLUG_TAKEN.code: "slug"}
PROVIDERS = {"turnstile": "Cloudflare Turnstile", "hcaptcha": "hCaptcha", "recaptcha": "reCAPTCHA"}
_TEXTS = ("tagline", "description", "avatar_image_url", "favicon_image_url", "consent_wording")
_BOXES = ("email_channel_enabled", "challenge_enabled", "confirm_required")
_ORIGINS = "redirect_origins"


def new_list_body(form: FormFields) -> NewList:
    """Raises ``body.invalid``."""
    values = {"title": form.get("title", ""), "slug": form.get("slug", "").strip()}
    return body_of_form(NewList, {**values, "tagline": text_or_none(form, "tagline")})


def settings_form(shown: Channel) -> TypedForm:
    """The form with what the list has now."""
    typed = {name: getattr(shown, name) or "" for name in ("title", "slug", *_TEXTS)}
    typed["challenge_provider"] = shown.challenge_provider or ""
    typed[_ORIGINS] = "\n".join(shown.redirect_origins)
    typed |= dict.fromkeys((name for name in _BOXES if getattr(shown, name)), "on")
    return TypedForm(typed)


def list_changes(form: FormFields, shown: Channel) -> ListChanges:
    """What the form has other than the list has it now; raises ``body.invalid``.

    What it leaves as it is is not named, as a program would do it: a challenge provider that is
    set up no more must not keep the owner from changing the title.
    """
    values: dict[str, Any] = {name: text_or_none(form, name) for name in _TEXTS}
    values |= {name: name in form for name in _BOXES}
    values |= {name: form.get(name, "").strip() for name in ("title", "slug")}
    values["challenge_provider"] = text_or_none(form, "challenge_provider")
    values[_ORIGINS] = lines_of(form, _ORIGINS)
    changed = {name: value for name, value in values.items() if value != getattr(shown, name)}
    return body_of_form(ListChanges, changed)
