import re
from pathlib import Path


def held_memory(pid: int) -> int:
    """Bytes of a process: what it shares with others counts in part; 0 once it has ended.

    Workers hide their maps from all but root. To others what they share counts in whole.
    """
    folder = Path(f"/proc/{pid}")
    try:
        counted = (folder / "smaps_rollup").read_text()
    except PermissionError:
        counted = (folder / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^(?:Pss|VmRSS):\s+(\d+) kB", counted, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
