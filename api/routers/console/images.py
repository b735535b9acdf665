"""An owner's images: all of them as small ones, and one with what is pasted elsewhere."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.access.requirements import PUBLIC
from api.console.assets import CONSOLE_PATH
from api.console.of_images.shown_images import (
    LINK_LIFETIMES,
    media_sources,
    shown_image,
    signed_link,
)
from api.console.typed_forms import TypedForm, body_of_form, lines_of
from api.console.visits import ConsoleVisit, FormVisit, Visit
from api.limits.bulkheads import RECORDS
from api.schemas.attachments import AttachmentChanges
from core.errors import DomainError
from models import Attachment
from services.media.attachments import records

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/images"
router = APIRouter(prefix=f"{PATH}/{{hash_id}}", dependencies=[PUBLIC], include_in_schema=False)


@router.get("")
@RECORDS.threaded
def show_image(visit: Visit, hash_id: str, link: str = "") -> Response:
    """One image; with ``link``, a signed URL of an encrypted one for so many seconds."""
    return _page(visit, _own(visit, hash_id), None, link)


@router.post("")
@RECORDS.threaded
def change_image(visit: FormVisit, hash_id: str) -> Response:
    try:
        body = body_of_form(
            AttachmentChanges,
            {
                "alt_text": visit.form.get("alt_text", "").strip() or None,
                "title": visit.form.get("title", "").strip() or None,
                "tags": lines_of(visit.form, "tags"),
            },
        )
    except DomainError as error:
        return _page(visit, _own(visit, hash_id), visit.refused(error))
    with visit.unit_of_work() as uow:
        records.change(uow, visit.caller, hash_id, body.sent())
    return visit.done(f"{PATH}/{hash_id}", "The image is changed.")


@router.get("/delete")
@RECORDS.threaded
def show_deletion(visit: Visit, hash_id: str) -> Response:
    """What it means to delete the image, before it is done."""
    image = shown_image(visit.state, _own(visit, hash_id))
    return visit.page("delete_image.html", foreign=media_sources(visit.state), image=image)


@router.post("/delete")
@RECORDS.threaded
def delete_image(visit: FormVisit, hash_id: str) -> Response:
    image = shown_image(visit.state, _own(visit, hash_id))
    with visit.unit_of_work() as uow:
        records.remove(uow, visit.caller, hash_id)
    return visit.done(PATH, f"“{image.name}” is deleted.")


def _own(visit: ConsoleVisit, hash_id: str) -> Attachment:
    with visit.unit_of_work() as uow:
        return records.get(uow, visit.caller, hash_id)


def _page(
    visit: ConsoleVisit, attachment: Attachment, form: TypedForm | None, link: str = ""
) -> Response:
    image = shown_image(visit.state, attachment)
    form = form or TypedForm(
        {
            "alt_text": image.record.alt_text or "",
            "title": image.record.title or "",
            "tags": "\n".join(image.record.tags),
        }
    )
    return visit.page(
        "image.html",
        status=form.status,
        foreign=media_sources(visit.state),
        form=form,
        image=image,
        files=image.labelled,
        link=signed_link(visit.state, attachment, link) if link else None,
        lifetimes=LINK_LIFETIMES,
    )
