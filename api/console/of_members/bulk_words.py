"""Acts on many members in words."""

from collections.abc import Mapping
from enum import StrEnum

from models import BulkAct, BulkAction, Job, JobStatus

# By the act: what a person chooses, and what it means.
ACTIONS: Mapping[str, tuple[str, str]] = {
    BulkAction.TAG: ("Give them a tag", "The tag is made if the list has none of that name."),
    BulkAction.UNTAG: ("Take a tag off them", ""),
    BulkAction.SET_TYPE: ("Move them to a tier", "The end of a tier that has passed goes."),
    BulkAction.EMAIL_OFF: ("Switch their mail off", "They stay members. An undo switches it on."),
    BulkAction.REMOVE: ("Remove them from the list", "They get nothing. An undo brings them back."),
}


class ActState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    ENDED_EARLY = "ended_early"
    BEING_UNDONE = "being_undone"
    UNDO_FAILED = "undo_failed"
    UNDONE = "undone"


def act_state(act: BulkAct, undo_job: Job | None) -> ActState:
    """How an act stands, with its undo."""
    if act.undone_at is not None:
        return ActState.UNDONE
    if undo_job is not None:
        return ActState.UNDO_FAILED if undo_job.finished_at is not None else ActState.BEING_UNDONE
    if act.status == JobStatus.RUNNING:
        return ActState.RUNNING
    return ActState.DONE if act.status == JobStatus.SUCCEEDED else ActState.ENDED_EARLY


def act_words(act: BulkAct, tag: str | None) -> str:
    """What an act does, such as "Give the tag “vip”"."""
    of_tag = f"the tag “{tag}”" if tag is not None else "a tag that is gone"
    return {
        BulkAction.TAG: f"Give {of_tag}",
        BulkAction.UNTAG: f"Take off {of_tag}",
        BulkAction.SET_TYPE: f"Move to {act.type}",
        BulkAction.EMAIL_OFF: "Switch mail off",
        BulkAction.REMOVE: "Remove from the list",
    }[BulkAction(act.action)]
