"""The memory that a process holds."""

import re
from pathlib import Path


def held_memory(pid: int) -> int:
    """Return the bytes that a process holds, or 0 if it has ended.

    Memory that several processes share counts in part. Workers hide their memory maps from all
    users except root, so for other users all shared memory counts.
    """
    folder = Path(f"/proc/{pid}")
    try:
        text = (folder / "smaps_rollup").read_text()
    except PermissionError:
        text = (folder / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    match = re.search(r"^(?:Pss|VmRSS):\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
