"""`pressroom doctor`: does everything work that this deployment needs?"""

import logging
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.connection import use_running_stack
from cli.doctor import examination
from cli.doctor.examination import Ask, CheckState, Diagnosis, fine, judged
from cli.doctor.service_checks import ask_mail, ask_providers, ask_public_url
from cli.doctor.store_checks import ask_broker, ask_cache, ask_database, ask_storage
from cli.doctor.work_checks import ask_backup
from cli.output import Json, fields, show_all
from core.errors import SettingsError
from core.logging import configure_logging
from core.settings import Settings, load_settings

# A busy API process opens so many at the same time.
_MIN_DESCRIPTORS = 4096
# The addresses of a file of a million members.
_MIN_FREE_BYTES = 64 * 2**20
_MIN_MEMORY_BYTES = 256 * 2**20
_MEMORY_BOUND = Path("/sys/fs/cgroup/memory.max")

FAULTY = 1
_MARKS = {CheckState.FINE: "✓", CheckState.WRONG: "✗", CheckState.SKIPPED: "–"}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    send: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Send a mail to this address, too.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=25, help="For how long answers are waited for.")
    ] = examination.MAX_EXAMINATION_SECONDS,
    as_json: Json = False,
) -> None:
    """Check everything that this deployment needs. With faults, the exit code is 1.

    It asks the database, Redis, the broker, the workers of each queue, the object storage, the mail
    server, the public URL and providers, all at the same time, and ends within half a minute
    whatever hangs. A process knows its own settings alone: run it where mail is sent to check mail.
    """
    use_running_stack()
    found = _examined(send, seconds)
    rows = [
        fields(each, "part check state found advice") if as_json else _row(each) for each in found
    ]
    show_all(rows, as_json=as_json)
    is_faulty = any(each.state is CheckState.WRONG for each in found)
    sys.stdout.flush()
    # At once: a thread that hangs in a call would hold up the end.
    os._exit(FAULTY if is_faulty else 0)


def _row(each: Diagnosis) -> dict[str, str]:
    brief = fields(each, "part check found")
    return {"": _MARKS[each.state], **brief, "what to do": each.advice}


def _examined(send: str | None, seconds: float) -> list[Diagnosis]:
    try:
        settings = load_settings()
    except SettingsError as error:
        advice = "Set it as docs/install.md says."
        return [
            examination.wrong(name, rule, advice, "settings")
            for name, _, rule in (line.partition(": ") for line in str(error).splitlines())
        ]
    configure_logging(settings.model_copy(update={"log_level": "error"}))
    # We tell of each fault once; the libraries would do so at each try.
    logging.disable(logging.WARNING)
    parts: dict[str, Ask] = {
        "database": ask_database,
        "redis": ask_cache,
        "broker": ask_broker,
        "object storage": ask_storage,
        "backup": ask_backup,
        "mail": partial(ask_mail, send),
        "public URL": ask_public_url,
        "providers": ask_providers,
        "this machine": ask_machine,
    }
    return examination.examine(parts, settings, seconds=seconds)


def ask_machine(_: Settings) -> Iterator[Diagnosis]:
    # Where a bulk worker keeps the addresses of a large file, and a backup what it sends.
    folder = os.environ.get("SQLITE_TMPDIR") or tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    found = f"{free // 2**20} MB are free in {folder}"
    advice = "Make room, or name another folder in SQLITE_TMPDIR."
    yield judged("disk", found, free < _MIN_FREE_BYTES, advice)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    is_unlimited = most == resource.RLIM_INFINITY
    found = "unlimited" if is_unlimited else str(most)
    advice = f"Raise the limit (ulimit -n) to {_MIN_DESCRIPTORS}."
    yield judged("open files", found, not is_unlimited and most < _MIN_DESCRIPTORS, advice)
    bound = _MEMORY_BOUND.read_text().strip() if _MEMORY_BOUND.exists() else "max"
    if bound == "max":
        yield fine("memory", "no bound of its own")
        return
    found, advice = f"at most {int(bound) // 2**20} MB", "Give the container more memory."
    yield judged("memory", found, int(bound) < _MIN_MEMORY_BYTES, advice)
