from pathlib import Path

import psutil


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def users_of(directory: Path) -> list[str]:
    """Every process that has to do with the directory: by arguments, place or settings."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            traces = [*command, process.cwd(), *process.environ().values()]
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if alive and any(str(directory) in trace for trace in traces):
            found.append(f"{process.pid} {' '.join(command)[:200]}")
    return found
