"""Folders that keep a user from what lies below them."""

import stat
from pathlib import Path


def topmost(path: Path, user_id: int, group_id: int) -> Path | None:
    """The first folder on the way to `path`, or itself, that this user cannot enter."""
    resolved = path.resolve()
    for folder in (*reversed(resolved.parents), resolved):
        found = folder.stat()
        if found.st_uid == user_id:
            needed = stat.S_IXUSR
        elif found.st_gid == group_id:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not found.st_mode & needed:
            return folder
    return None
