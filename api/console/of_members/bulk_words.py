"""Acts on many members in words."""

from collections.abc import Mapping

from models import BulkAct, BulkAction

# By the act: what a person chooses, and what it means.
ACTIONS: Mapping[str, tuple[str, str]] = {
    BulkAction.TAG: ("Give them a tag", "The tag is made if the list has none of that name."),
    BulkAction.UNTAG: ("Take a tag off them", ""),
    BulkAction.SET_TYPE: ("Move them to a tier", "The end of a tier that has passed goes."),
    BulkAction.EMAIL_OFF: ("Switch their mail off", "They stay members. An undo switches it on."),
    BulkAction.REMOVE: ("Remove them from the list", "They get nothing. An undo brings them back."),
}


def act_words(act: BulkAct, tag: str | None) -> str:
    """What an act does, such as "Give the tag “vip”"."""
    of_tag = f"the tag “{tag}”" if tag is not None else "a tag that is gone"
    return {
        BulkAction.TAG: f"Give {of_tag}",
        BulkAction.UNTAG: f"Take {of_tag} off",
        BulkAction.SET_TYPE: f"Move to {act.type}",
        BulkAction.EMAIL_OFF: "Switch mail off",
        BulkAction.REMOVE: "Remove from the list",
    }[BulkAction(act.action)]
