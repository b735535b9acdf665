import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.conftest import Fleet
from tests.faults.uploads import upload
from tests.held_memory import held_memory
from tests.pictures import encoded, photo
from tests.probe.bench import Bench
from tests.sizes import sized
from tests.stack import Running, eventually

IMAGES = sized(60, 1000)
AT_A_TIME = 4
UNCHANGED_SECONDS = 2.0
MEGABYTE = 1024 * 1024
# Far below what so many of these pictures take once decoded: 270 MB in short form.
MOST_LEFT = 40 * MEGABYTE


def pictures(count: int) -> list[bytes]:
    kinds = (
        photo(1500, 1000),
        photo(1200, 1250, quality=95),
        encoded("PNG", size=(1500, 1000)),
        encoded("GIF", size=(1500, 1000)),
        encoded("WEBP", size=(1500, 1000)),
    )
    return [kinds[number % len(kinds)] for number in range(count)]


def test_memory_of_a_media_worker_returns_to_its_level_after_many_images(
    bench: Bench, fleet: Fleet, api: Running, media: Running
) -> None:
    _upload_all(bench, 2 * AT_A_TIME)  # both of its processes have a converter now
    before = _settled(media)
    _upload_all(bench, IMAGES)
    eventually(
        lambda: _memory(media) <= before + MOST_LEFT,
        within=20,
        what=f"the return of {media.name} to {before / MEGABYTE:.0f} MB",
    )
    assert media.process.poll() is None


def _upload_all(bench: Bench, count: int) -> None:
    stack = bench.stack
    owner = stack.new_owner()
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        replies = list(
            threads.map(
                lambda picture: upload(stack, owner, wait=60, picture=picture), pictures(count)
            )
        )
    assert {reply.status_code for reply in replies} == {200}


def _settled(worker: Running) -> int:
    """Once it stays as it is: converters give memory back when they have idled a second."""
    level, since = 0, time.monotonic()

    def stays() -> bool:
        nonlocal level, since
        if abs(_memory(worker) - level) > MEGABYTE:
            level, since = _memory(worker), time.monotonic()
        return time.monotonic() - since > UNCHANGED_SECONDS

    eventually(stays, within=20, what="a memory that stays as it is")
    return level


def _memory(worker: Running) -> int:
    """Proportional set size of the whole process tree, in bytes."""
    return sum(held_memory(pid) for pid in (worker.pid, *_descendants(worker.pid)))


def _descendants(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [each for child in children for each in (child, *_descendants(child))]
