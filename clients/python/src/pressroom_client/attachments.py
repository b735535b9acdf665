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
    for pause in _plan_pauses(seconds or 0.0):
        if _is_ready(attachment):
            break
        time.sleep(pause)
        attachment = resource.read(attachment["hash_id"])
    if seconds is not None:
        _require_ready(attachment)
    return attachment


async def wait_for_attachment_async(
    resource: Any, attachment: types.AttachmentRecord, seconds: float | None
) -> types.AttachmentRecord:
    """Do the same as ``wait_for_attachment``, without blocking the event loop of asyncio."""
    for pause in _plan_pauses(seconds or 0.0):
        if _is_ready(attachment):
            break
        await asyncio.sleep(pause)
        attachment = await resource.read(attachment["hash_id"])
    if seconds is not None:
        _require_ready(attachment)
    return attachment


def _plan_pauses(seconds: float) -> Iterator[float]:
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while (remaining := deadline - time.monotonic()) > 0:
        yield min(pause, remaining)
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _require_ready(attachment: types.AttachmentRecord) -> None:
    if not _is_ready(attachment):
        hash_id = attachment["hash_id"]
        raise TimeoutError(f"Attachment {hash_id} is not ready yet; its conversion goes on.")


def _is_ready(attachment: types.AttachmentRecord) -> bool:
    if attachment["status"] == _FAILED:
        raise AttachmentFailed(attachment)
    return attachment["status"] == _READY
