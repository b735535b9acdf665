"""Waits until an uploaded image has been converted."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from pressroom_client.errors import AttachmentFailed
from pressroom_client.generated import types

_READY = 2
_FAILED = 3
_FIRST_PAUSE_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 5.0


def wait_for_attachment(
    resource: Any, attachment: types.AttachmentRecord, seconds: float | None
) -> types.AttachmentRecord:
    """Read the attachment until it is ready. Return it as it is if ``seconds`` is ``None``.

    Raises ``AttachmentFailed`` if the image can't be converted. Raises ``TimeoutError`` after
    ``seconds``, but the conversion continues.

    Args:
        resource: the methods of the resource ``attachments``.
    """
    for pause in _plan_pauses(attachment["hash_id"], seconds):
        if _is_ready(attachment):
            break
        time.sleep(pause)
        attachment = resource.read(attachment["hash_id"])
    return attachment


async def wait_for_attachment_async(
    resource: Any, attachment: types.AttachmentRecord, seconds: float | None
) -> types.AttachmentRecord:
    """Do the same as ``wait_for_attachment``, without blocking the event loop of asyncio."""
    for pause in _plan_pauses(attachment["hash_id"], seconds):
        if _is_ready(attachment):
            break
        await asyncio.sleep(pause)
        attachment = await resource.read(attachment["hash_id"])
    return attachment


def _plan_pauses(hash_id: str, seconds: float | None) -> Iterator[float]:
    if seconds is None:
        return
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        # Even after the deadline, the caller checks the last answer before this line raises.
        remaining = deadline - time.monotonic()
        yield max(min(pause, remaining), 0.0)
        if remaining <= 0:
            raise TimeoutError(f"Attachment {hash_id} is not ready yet; its conversion goes on.")
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _is_ready(attachment: types.AttachmentRecord) -> bool:
    if attachment["status"] == _FAILED:
        raise AttachmentFailed(attachment)
    return attachment["status"] == _READY
