"""Pages on which an owner manages images, and copies links and HTML for a web site."""

import html
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Request
from fastapi.responses import Response

from api.auth.csrf import CSRF_FIELD, require_csrf
from api.bodies.multipart_forms import find_only_file, read_multipart_form
from api.console.assets import CONSOLE_PATH
from api.console.console_display import format_count
from api.console.plan_notices import find_plan_notice
from api.console.requests import (
    ConsoleAccess,
    ConsoleRequest,
    EmptyForm,
    build_router,
    shows_errors_on,
)
from api.console.typed_forms import (
    TypedForm,
    build_field_error,
    parse_body,
    read_lines,
    read_text,
)
from api.console.uploaded_images import WAIT_SECONDS, wait_for_image
from api.limits.bulkheads import RECORDS
from api.limits.keyed_bulkheads import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.paging import Cursor
from api.schemas.attachments import AttachmentChanges, AttachmentRecord, RenditionRecord
from api.state import Transaction
from core.errors import DomainError
from core.errors.media import (
    IMAGE_CRASHED,
    IMAGE_OUT_OF_MEMORY,
    IMAGE_TIMEOUT,
    SIGNED_LINK_NOT_ENCRYPTED,
)
from core.permissions import Permission
from core.queues import Queue
from core.settings.notations import PlanQuota
from core.upload_limits import MAX_IMAGE_BYTES
from models import Attachment, AttachmentStatus
from services.access import quotas
from services.accounts import accounts
from services.attachments import records, thumbnails, upload
from services.attachments.images.blurhash import compute_tiles
from services.attachments.upload import Upload, clean_filename
from services.jobs.idempotency import AcceptedJob
from services.paging import PageRequest
from services.subscriptions import branding
from storage.unit_of_work import UnitOfWork

PATH = f"{CONSOLE_PATH}/images"
router = build_router(PATH)

IMAGES_ON_PAGE = 24
# The names of the renditions for mails and for the page of an image.
_MAIL_LABEL = "mail"
_PREVIEW_LABEL = "640"
# A larger file isn't shown on the page of its image, because it would load slowly.
_MAX_PREVIEW_BYTES = 200_000
# The number of columns and rows in the grid of coloured tiles that is visible until the thumbnail
# has loaded.
_TILE_COUNTS = (4, 3)
# Maps the code of a failed conversion to a reason with advice, instead of the API's message.
_REASONS_BY_CODE = {
    IMAGE_TIMEOUT.code: (
        "The image takes too long to process. Save a version with fewer pixels or frames."
    ),
    IMAGE_OUT_OF_MEMORY.code: (
        "The image is too large to process. Save a version with fewer pixels or frames."
    ),
    IMAGE_CRASHED.code: (
        "The image can’t be processed. Open the file in an image editor, and save it again."
    ),
}
# Maps the lifetime of a signed link in seconds to a label.
LINK_LIFETIMES = {"3600": "1 hour", "86400": "1 day", "604800": "1 week"}
ImagesPage = Annotated[ConsoleRequest, Depends(ConsoleAccess(permission=Permission.IMAGES))]
ImagesForm = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.IMAGES, is_form=True))
]
RecentImagesPage = Annotated[
    ConsoleRequest, Depends(ConsoleAccess(permission=Permission.IMAGES, is_recent=True))
]
RecentImagesForm = Annotated[
    ConsoleRequest,
    Depends(ConsoleAccess(permission=Permission.IMAGES, is_form=True, is_recent=True)),
]


@dataclass(frozen=True)
class FileView:
    """A file with the uploaded image or one of its renditions.

    Attributes:
        label: the name of the rendition, such as "mail", or an empty string for the uploaded image.
        size: the file size in bytes.
    """

    label: str
    url: str
    width: int | None
    height: int | None
    size: int
    alt: str

    @property
    def words(self) -> str:
        if not self.label:
            return "Original"
        return (
            "For e-mails"
            if self.label == _MAIL_LABEL
            else f"{format_count(int(self.label), 'pixel')} wide"
        )

    @property
    def tag(self) -> str:
        sides = "" if self.width is None else f' width="{self.width}" height="{self.height}"'
        return f'<img src="{html.escape(self.url)}" alt="{html.escape(self.alt)}"{sides}>'

    @property
    def markdown(self) -> str:
        escaped = self.alt.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]")
        return f"![{' '.join(escaped.split())}]({self.url})"


@dataclass(frozen=True)
class ImageView:
    record: AttachmentRecord

    @property
    def name(self) -> str:
        return self.record.title or self.record.original_filename

    @property
    def is_ready(self) -> bool:
        return self.record.status == AttachmentStatus.READY

    @property
    def reason(self) -> str | None:
        error = self.record.error
        if error is None:
            return None
        return _REASONS_BY_CODE.get(error["code"], str(error["message"]))

    @property
    def alt(self) -> str:
        """Return the alternative text, or else the name of the image."""
        return self.record.alt_text or self.name

    @property
    def thumbnail(self) -> FileView | None:
        """Return the thumbnail, or ``None`` if a job still has to create it."""
        thumbnail = self.record.thumbnail
        return None if thumbnail is None else self._build_file_view(thumbnail)

    @property
    def preview(self) -> FileView | None:
        by_label = {each.label: each for each in self.files}
        preview = by_label.get(_PREVIEW_LABEL, by_label[""])
        return preview if preview.size <= _MAX_PREVIEW_BYTES else self.thumbnail

    @property
    def tiles(self) -> list[list[str]]:
        blurhash = self.record.blurhash
        return [] if blurhash is None else compute_tiles(blurhash, *_TILE_COUNTS)

    @property
    def files(self) -> list[FileView]:
        """Return the files that the owner can use, beginning with the copy for e-mails."""
        record = self.record
        alt = record.alt_text or ""
        original = FileView("", record.view_url, record.width, record.height, record.size, alt)
        files = [original, *map(self._build_file_view, record.renditions)]
        return sorted(files, key=lambda each: each.label != _MAIL_LABEL)

    def _build_file_view(self, rendition: RenditionRecord) -> FileView:
        return FileView(
            rendition.name,
            rendition.view_url,
            rendition.width,
            rendition.height,
            rendition.size,
            self.record.alt_text or "",
        )


@router.get("")
def show_images(
    console: ImagesPage, uow: Transaction, form: EmptyForm, cursor: Cursor = None
) -> Response:
    page_request = PageRequest(IMAGES_ON_PAGE, cursor=cursor)
    words = console.request.query_params.get("q", "").strip()
    page = records.list_attachments(uow, console.caller, page_request, words=words)
    notice = find_plan_notice(uow, console.account_id, PlanQuota.STORAGE_MB)
    account = accounts.get_account(uow, console.account_id)
    free_bytes = quotas.find_remaining_quota(uow, account, PlanQuota.STORAGE_MB)
    thumbnails.enqueue_missing_thumbnails(uow, console.account_id, page.rows)
    return console.render_page(
        "images.html",
        form.fill({"q": words}),
        other_sources=console.get_media_sources(),
        refusal=notice,
        # Show the free storage space only if it is too small for an image of the maximum size.
        free_bytes=None if (free_bytes or 0) >= MAX_IMAGE_BYTES else free_bytes,
        images=[_build_view(console, each) for each in page.rows],
        words=words,
        query=f"?{urlencode({'q': words})}" if words else "?",
        next_cursor=page.next_cursor,
    )


@router.post("")
async def upload_image(request: Request, console: ImagesPage) -> Response:
    inputs: dict[str, str] = {}
    try:
        console.state.admit(Queue.MEDIA, console.account_id, WAIT_SECONDS)
        accepted = await _accept_upload(request, console, inputs)
        image = await wait_for_image(console, accepted)
    except DomainError as error:
        submitted_console = replace(console, form=inputs)
        is_of_file = error.code.startswith(("attachment.", "image."))
        places = {error.code: "file"} if is_of_file else {}
        form = await RECORDS.run(submitted_console.add_error, error, places)
        return await console.state.in_unit_of_work(
            lambda uow: show_images(submitted_console, uow, form)
        )
    name = image.original_filename
    if image.status != AttachmentStatus.READY:
        return console.redirect(PATH, f"“{name}” was uploaded and is being processed.")
    return console.redirect(f"{PATH}/{image.hash_id}", f"“{name}” was uploaded.")


async def _accept_upload(
    request: Request, console: ConsoleRequest, inputs: dict[str, str]
) -> AcceptedJob:
    """Store the uploaded image, and enqueue its conversion.

    The caller must keep no reference to the image's bytes, so that the memory is freed during the
    conversion.
    """
    form = await read_multipart_form(request)
    inputs.update({name: value.decode(errors="replace") for name, value in form.fields})
    require_csrf(request, console.state, console.member.cookie, inputs.get(CSRF_FIELD))
    part = find_only_file(form, "file")
    accepted = await UPLOADS_BY_CALLER.run(
        console.account_id,
        upload.accept_upload,
        console.state.resources,
        console.account_id,
        # Request renditions, so that the image's page can offer copies for web pages and mails.
        Upload(clean_filename(part.filename), part.data, "encrypted" in inputs, True),
        key=None,
    )
    release_body(request.scope)
    return accepted


@router.get("/{hash_id}")
def show_image(console: ImagesPage, uow: Transaction, hash_id: str, form: EmptyForm) -> Response:
    attachment = records.get_attachment(uow, console.caller, hash_id)
    image = _build_view(console, attachment)
    values = {
        "alt_text": image.record.alt_text or "",
        "title": image.record.title or "",
        "tags": "\n".join(image.record.tags),
    }
    return console.render_page(
        "image.html",
        form.fill(values),
        other_sources=console.get_media_sources(),
        image=image,
        can_retry=records.find_retryable_job(uow, attachment) is not None,
    )


@router.post("/{hash_id}/retry")
def retry_image(console: ImagesForm, uow: Transaction, hash_id: str) -> Response:
    records.retry_conversion(uow, console.caller, hash_id)
    return console.redirect(f"{PATH}/{hash_id}", "The image is being processed again.")


@router.post("/{hash_id}")
@shows_errors_on(show_image)
def change_image(console: ImagesForm, uow: Transaction, hash_id: str) -> Response:
    values = {
        "alt_text": read_text(console.form, "alt_text"),
        "title": read_text(console.form, "title"),
        "tags": read_lines(console.form, "tags"),
    }
    changes = parse_body(AttachmentChanges, values).sent()
    records.change_attachment(uow, console.caller, hash_id, changes)
    return console.redirect(f"{PATH}/{hash_id}", "The changes were saved.")


@router.get("/{hash_id}/link")
def show_new_link(
    console: RecentImagesPage, uow: Transaction, hash_id: str, form: EmptyForm
) -> Response:
    """Show the form for a signed link to an image. A required login leads back to this form."""
    return _render_link_page(console, uow, hash_id, form, None)


@router.post("/{hash_id}/link")
@shows_errors_on(show_new_link)
def create_link(console: RecentImagesForm, uow: Transaction, hash_id: str) -> Response:
    """Create a signed link to an encrypted image, and show the link.

    The response isn't a redirect, because the URL of a redirect would reveal the link in logs.
    """
    lifetime = console.form.get("lasts", "")
    if lifetime not in LINK_LIFETIMES:
        raise build_field_error("lasts", "choose one of the listed times")
    link = records.sign_link(uow, console.caller, hash_id, expires_in=int(lifetime))
    return _render_link_page(console, uow, hash_id, TypedForm(console.form), link)


def _render_link_page(
    console: ConsoleRequest,
    uow: UnitOfWork,
    hash_id: str,
    form: TypedForm,
    link: tuple[str, datetime] | None,
) -> Response:
    image = _build_view(console, records.get_attachment(uow, console.caller, hash_id))
    if not image.record.encrypted:
        raise SIGNED_LINK_NOT_ENCRYPTED()
    lifetimes = list(LINK_LIFETIMES.items())
    return console.render_page("image_link.html", form, image=image, link=link, lifetimes=lifetimes)


@router.get("/{hash_id}/delete")
def show_deletion(console: ImagesPage, uow: Transaction, hash_id: str) -> Response:
    image = _build_view(console, records.get_attachment(uow, console.caller, hash_id))
    return console.render_page(
        "delete_image.html",
        other_sources=console.get_media_sources(),
        image=image,
        lists=branding.find_lists_with_logo(uow, console.account_id, hash_id),
    )


@router.post("/{hash_id}/delete")
def delete_image(console: ImagesForm, uow: Transaction, hash_id: str) -> Response:
    image = _build_view(console, records.get_attachment(uow, console.caller, hash_id))
    records.delete_attachment(uow, console.caller, hash_id)
    return console.redirect(PATH, f"“{image.name}” was deleted.")


def _build_view(console: ConsoleRequest, attachment: Attachment) -> ImageView:
    return ImageView(AttachmentRecord.of(attachment, console.state.resources.settings))
