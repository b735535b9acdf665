"""Runs uploads, imports and charges while other programs keep the processor busy.

The busy loops have the ordinary priority. They run in a session each, and once more in one session,
because Linux divides the processor's time among sessions first. For comparison, the same work runs
on the quiet machine.
"""

import csv
import io
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import xlsxwriter

from benchmarks.measure import Finding
from benchmarks.running_stack import running_stack
from devstack.harness.busy_loops import busy_loops

LOOPS = 20
UPLOADS = 20
CHARGES = 100
ROWS = 10_000
MAX_SECONDS = 20 * 60.0
_CALLERS = 10
_POLL_SECONDS = 1.0
_REFUSED = frozenset({429, 502, 503, 504})
_ENDED = frozenset({"succeeded", "failed", "cancelled"})
# The statuses of an attachment.
_READY = 2
_FAILED = 3
_HEADER = ("Email", "First name", "City", "Score")


@dataclass
class _Outcomes:
    """The outcomes of one kind of work: the seconds of each success, and the failures."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def measure() -> list[Finding]:
    crowds: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "quiet machine": nullcontext,
        f"{LOOPS} sessions": lambda: busy_loops(LOOPS, max_seconds=2 * MAX_SECONDS),
        f"{LOOPS} loops in one session": lambda: busy_loops(
            LOOPS, max_seconds=2 * MAX_SECONDS, in_one_session=True
        ),
    }
    findings = []
    for name, crowd in crowds.items():
        with running_stack() as stack, crowd():
            outcomes = _do_all_work(stack)
        findings += [_build_finding(name, *each) for each in outcomes.items()]
    return findings


def _build_finding(crowd: str, work: str, outcomes: _Outcomes) -> Finding:
    longest = max(outcomes.seconds, default=0.0)
    is_met = not outcomes.failures and longest <= MAX_SECONDS
    bar = f"all within {MAX_SECONDS:g} s"
    spread = (min(outcomes.seconds, default=0.0), longest)
    details = {"succeeded": len(outcomes.seconds), "failed": outcomes.failures}
    return Finding(f"crowded: {work}, {crowd}", longest, "s", bar, is_met, spread, details)


def _do_all_work(stack: dict[str, Any]) -> dict[str, _Outcomes]:
    """Do all kinds of work at the same time, and wait until all of it has ended."""
    key = stack["demo"]["api_key"]
    photo = (Path(stack["home"]) / "sample.jpg").read_bytes()
    with (
        httpx2.Client(
            base_url=stack["api_url"], headers={"Authorization": f"Bearer {key}"}, timeout=180.0
        ) as client,
        ThreadPoolExecutor(UPLOADS) as uploading,
        ThreadPoolExecutor(len(_FILES)) as importing,
        ThreadPoolExecutor(_CALLERS) as charging,
    ):
        caller = _Caller(client)
        work: dict[str, list[Any]] = {
            "uploads": [uploading.submit(caller.upload, photo) for _ in range(UPLOADS)],
            "imports": [importing.submit(caller.import_file, *each) for each in _FILES],
            "charges": [charging.submit(caller.charge) for _ in range(CHARGES)],
        }
        outcomes: dict[str, _Outcomes] = {}
        for name, futures in work.items():
            outcomes[name] = _Outcomes()
            for future in futures:
                try:
                    outcomes[name].seconds.append(future.result())
                except (_WorkFailed, httpx2.HTTPError) as failure:
                    outcomes[name].failures.append(str(failure) or type(failure).__name__)
        return outcomes


class _WorkFailed(Exception):
    """Work that the API accepted has failed, or the API has refused a call for too long."""


class _Caller:
    """A caller who repeats refused calls, as ``curl --retry`` does, and waits for all work.

    Each method returns after how many seconds its work succeeded. Raises ``_WorkFailed``.
    """

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def upload(self, photo: bytes) -> float:
        began_at = time.monotonic()
        record = self._call("POST", "/attachments", files={"file": ("sample.jpg", photo)})
        while record["status"] not in (_READY, _FAILED):
            _pause(began_at)
            record = self._call("GET", f"/attachments/{record['hash_id']}")
        if record["status"] == _FAILED:
            raise _WorkFailed(str(record["error"]))
        return time.monotonic() - began_at

    def import_file(self, filename: str, build: Callable[[], bytes], query: str) -> float:
        content = build()
        began_at = time.monotonic()
        slug = f"crowded-{secrets.token_hex(6)}"
        letter = self._call("POST", "/lists", json={"title": "Crowded", "slug": slug})
        job = self._call(
            "POST",
            f"/lists/{letter['id']}/imports{query}",
            files={"file": (filename, content)},
            headers={"Prefer": "respond-async"},
        )
        while job["status"] not in _ENDED:
            _pause(began_at)
            job = self._call("GET", f"/jobs/{job['id']}")
        if job["status"] != "succeeded" or job["result"]["added"] != ROWS:
            raise _WorkFailed(str(job["error"] or job["result"]))
        return time.monotonic() - began_at

    def charge(self) -> float:
        began_at = time.monotonic()
        body = {"amount_credit": 0.0001, "source_id": "crowded"}
        key = {"Idempotency-Key": secrets.token_hex(16)}
        self._call("POST", "/auxilia/credits/consume", json=body, headers=key)
        return time.monotonic() - began_at

    def _call(self, method: str, path: str, **options: Any) -> Any:
        began_at = time.monotonic()
        while True:
            reply = self._client.request(method, path, **options)
            if reply.status_code not in _REFUSED:
                break
            _pause(began_at, float(reply.headers.get("Retry-After", _POLL_SECONDS)))
        if not reply.is_success:
            raise _WorkFailed(f"{path}: {reply.status_code} {reply.text[:200]}")
        return reply.json()["data"]


def _pause(began_at: float, seconds: float = _POLL_SECONDS) -> None:
    if time.monotonic() - began_at > MAX_SECONDS:
        raise _WorkFailed(f"not done after {MAX_SECONDS:g} s")
    time.sleep(seconds)


def _list_rows() -> Iterator[tuple[object, ...]]:
    mark = secrets.token_hex(6)
    for number in range(ROWS):
        yield f"member{number}@{mark}.example", f"Ada {number}", f"City {number % 500}", number / 4


def _build_csv() -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([_HEADER, *_list_rows()])
    return text.getvalue().encode()


def _build_workbook() -> bytes:
    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True}) as book:
        sheet = book.add_worksheet("Members")
        for number, row in enumerate([_HEADER, *_list_rows()]):
            sheet.write_row(number, 0, row)
    return file.getvalue()


# The name, the builder and the query of each imported file.
_FILES = (
    ("members.csv", _build_csv, ""),
    ("members.csv", _build_csv, "?create_fields=1"),
    ("members.xlsx", _build_workbook, ""),
    ("members.xlsx", _build_workbook, "?create_fields=1"),
)
