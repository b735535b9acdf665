"""Measures the memory that a process uses."""

import re
from pathlib import Path


def measure_memory(pid: int) -> int:
    """Return the memory of a process in bytes, or 0 if the process has ended.

    Shared memory is divided by the number of processes that share it (PSS). Unless the calling
    program runs as root, the result for a worker is its RSS, which includes all shared memory.
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
