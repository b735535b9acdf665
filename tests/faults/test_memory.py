from concurrent.futures import ThreadPoolExecutor

from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.running import Running
from tests.support.images.pictures import encoded, photo
from tests.support.images.uploads import upload
from tests.support.probe.bench import Bench
from tests.support.sizes import sized
from tests.support.stack.fleet import Fleet
from tests.support.stack.held_memory import MEGABYTE, await_stable_memory
from tests.support.stack.signals import list_children

IMAGE_COUNT = sized(60, 1000)
CONCURRENT_UPLOADS = 4
# If the worker kept 60 decoded pictures in memory, its memory would grow by 270 MB.
MAX_MEMORY_GROWTH_BYTES = 40 * MEGABYTE


def pictures(count: int) -> list[bytes]:
    kinds = (
        photo(1500, 1000),
        photo(1200, 1250, quality=95),
        encoded("PNG", size=(1500, 1000)),
        encoded("GIF", size=(1500, 1000)),
        encoded("WEBP", size=(1500, 1000)),
    )
    return [kinds[number % len(kinds)] for number in range(count)]


def test_memory_of_media_worker_returns_to_its_level_after_many_images(
    probes: Bench, fleet: Fleet, api: Running, media_worker: Running
) -> None:
    # Upload enough images that both processes of the media worker start an image converter.
    _upload_all(probes, 2 * CONCURRENT_UPLOADS)
    before = await_stable_memory(lambda: _memory(media_worker))
    _upload_all(probes, IMAGE_COUNT)
    eventually(
        lambda: _memory(media_worker) <= before + MAX_MEMORY_GROWTH_BYTES,
        within=20,
        what=f"the return of {media_worker.name} to {before / MEGABYTE:.0f} MB",
    )
    assert media_worker.process.poll() is None


def _upload_all(probes: Bench, count: int) -> None:
    stack = probes.stack
    owner = stack.create_owner()
    with ThreadPoolExecutor(CONCURRENT_UPLOADS) as threads:
        replies = list(
            threads.map(
                lambda picture: upload(stack, owner, wait=60, picture=picture), pictures(count)
            )
        )
    assert {reply.status_code for reply in replies} == {200}


def _memory(worker: Running) -> int:
    """Proportional set size of the whole process tree, in bytes."""
    return sum(measure_memory(pid) for pid in (worker.pid, *_descendants(worker.pid)))


def _descendants(pid: int) -> list[int]:
    descendants: list[int] = []
    for child in list_children(pid):
        descendants += [child, *_descendants(child)]
    return descendants
