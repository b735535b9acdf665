"""Measures the memory that a process holds."""

import re
from pathlib import Path


def measure_memory(pid: int) -> int:
    """Return the number of bytes that a process holds, or 0 for an ended process.

    Shared memory is divided between the processes that share the memory. Workers hide their memory
    maps from all users except root. For users except root, the result includes all shared memory.
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
