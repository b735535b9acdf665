"""All of an owner's images, and the form that takes a new one."""

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.access.browsers import CSRF_FIELD, require_csrf
from api.access.requirements import PUBLIC
from api.bodies.multipart import file_named, read_form
from api.console.assets import CONSOLE_PATH
from api.console.of_images.shown_images import is_one_of_the_file, media_sources, shown_image
from api.console.typed_forms import TypedForm
from api.console.visits import ConsoleVisit, Visit
from api.limits.bulkheads import RECORDS
from api.limits.shares import UPLOADS_BY_CALLER
from api.middleware.body_limits import release_body
from api.parameters import Cursor
from api.request_ids import current_request_id
from api.waiting.disconnects import while_connected
from core.errors import DomainError
from core.lanes import Lane
from models import Attachment, AttachmentStatus
from services.jobs.idempotency import AcceptedJob
from services.media.attachments import records, upload
from services.media.attachments.upload import Upload, clean_filename
from services.paging import PageRequest
from storage.redis.notifications import job_topic

# No operations of the API, so not in its document.
PATH = f"{CONSOLE_PATH}/images"
router = APIRouter(prefix=PATH, dependencies=[PUBLIC], include_in_schema=False)

IMAGES_ON_PAGE = 24
WAIT_SECONDS = 15.0
_ENCRYPTED = "encrypted"


@router.get("")
@RECORDS.threaded
def show_images(visit: Visit, cursor: Cursor = None) -> Response:
    """The owner's images, newest first, each as a small one."""
    return _page(visit, TypedForm(), cursor)


@router.post("")
async def upload_image(request: Request, visit: Visit) -> Response:
    """Take one image, and wait for its conversion."""
    state = visit.state
    typed: dict[str, str] = {}
    try:
        state.admit(Lane.MEDIA, visit.user_id, WAIT_SECONDS)
        accepted = await _accept(request, visit, typed)
        ended = state.jobs.wait(job_topic(accepted.job_id), WAIT_SECONDS, owner_id=visit.user_id)
        await while_connected(request.receive, ended)
        image = await RECORDS.run(_outcome, visit, accepted)
    except DomainError as error:
        return await RECORDS.run(_refused, replace(visit, form=typed), error)
    name = image.original_filename
    if image.status != AttachmentStatus.READY:
        return visit.done(PATH, f"“{name}” is here, and will be ready soon.")
    return visit.done(f"{PATH}/{image.hash_id}", f"“{name}” is ready.")


async def _accept(request: Request, visit: ConsoleVisit, typed: dict[str, str]) -> AcceptedJob:
    """A function of its own, so that nothing holds the file's bytes while the browser waits."""
    form = await read_form(request)
    typed.update({name: value.decode(errors="replace") for name, value in form.fields})
    require_csrf(request, visit.state, visit.member.cookie, typed.get(CSRF_FIELD))
    part = file_named(form, "file")
    accepted = await UPLOADS_BY_CALLER.run(
        visit.user_id,
        upload.accept,
        visit.state.resources,
        visit.caller,
        # With renditions, of which pages show the smallest.
        Upload(clean_filename(part.filename), part.data, _ENCRYPTED in typed, True),
        key=None,
        request_id=current_request_id(),
    )
    release_body(request.scope)
    return accepted


def _outcome(visit: ConsoleVisit, accepted: AcceptedJob) -> Attachment:
    """Raises why there is no image."""
    with visit.unit_of_work() as uow:
        found = records.outcome(uow, accepted)
        if isinstance(found, DomainError):
            records.forget_failed(uow, accepted)
    if isinstance(found, DomainError):
        raise found
    return found


def _refused(visit: ConsoleVisit, error: DomainError) -> Response:
    places = {error.code: "file"} if is_one_of_the_file(error) else {}
    return _page(visit, visit.refused(error, places))


def _page(visit: ConsoleVisit, form: TypedForm, cursor: str | None = None) -> Response:
    with visit.unit_of_work() as uow:
        found = records.list_of(uow, visit.caller, PageRequest(IMAGES_ON_PAGE, cursor=cursor))
    return visit.page(
        "images.html",
        status=form.status,
        foreign=media_sources(visit.state),
        form=form,
        images=[shown_image(visit.state, each) for each in found.rows],
        next_cursor=found.next_cursor,
        cursor=cursor,
    )
