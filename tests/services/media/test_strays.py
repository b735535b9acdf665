import json
from datetime import timedelta

import httpx
from sqlalchemy import event

from core import clock
from services import removals
from services.media.attachments import strays
from services.media.attachments.strays import Stray, StrayKind
from tests.pictures import photo
from tests.stack import Stack


def found(stack: Stack, *, hours: float = 2) -> set[Stray]:
    """What a sweep finds that looks `hours` from now."""
    removals.work_off(stack.resources)
    return set(strays.find(stack.resources, now=clock.now() + timedelta(hours=hours)))


def upload(client: httpx.Client) -> dict[str, str]:
    reply = client.post("/attachments", files={"file": ("p.jpg", photo())})
    data: dict[str, str] = reply.json()["data"]
    return data


def test_what_belongs_together_is_no_stray(stack: Stack, client: httpx.Client) -> None:
    record = upload(client)
    assert not [stray for stray in found(stack) if record["hash_id"] in stray.key]


def test_an_object_without_a_row_is_found_and_removed(stack: Stack) -> None:
    keys = ["originals/000000000000", "media/zzzzzzzzzzzz.webp", "media/0.webp"]
    for key in keys:
        stack.resources.objects.put(key, b"left behind", "image/webp")
    expected = {Stray(StrayKind.OBJECT_WITHOUT_ROW, key) for key in keys}
    assert expected <= found(stack)
    for stray in expected:
        strays.mend(stack.resources, stray)
    assert not expected & found(stack)
    assert not any(stack.resources.objects.exists(key) for key in keys)


def test_a_row_whose_object_is_gone_is_found_and_failed(stack: Stack, client: httpx.Client) -> None:
    record = upload(client)
    key = f"media/{record['filename']}"
    stack.resources.objects.remove(key)
    stray = Stray(StrayKind.ROW_WITHOUT_OBJECT, key)
    assert stray in found(stack)
    strays.mend(stack.resources, stray)
    after = client.get(f"/attachments/{record['hash_id']}").json()["data"]
    assert (after["status"], after["error"]["code"]) == (3, "attachment.object_missing")
    assert stray not in found(stack)


def test_what_is_young_is_left_alone(stack: Stack) -> None:
    key = "originals/111111111111"
    stack.resources.objects.put(key, b"of a request under way", "image/webp")
    assert Stray(StrayKind.OBJECT_WITHOUT_ROW, key) not in found(stack, hours=0.5)
    stack.resources.objects.remove(key)


def test_an_upload_that_waits_for_its_worker_keeps_its_original(stack: Stack) -> None:
    owner = stack.new_owner()
    stack.query(
        "INSERT INTO attachments (user_id, hash_id, status, encrypted, mime_type, filename, size,"
        " checksum, original_filename, original_mime_type, original_size, original_checksum)"
        " VALUES (%s, 'waiting', 1, false, 'image/webp', 'waiting.webp', 0, '', 'x', 'image/png',"
        " 1, '')",
        owner.user_id,
    )
    stack.resources.objects.put("originals/waiting", b"a picture", "image/webp")
    assert not [stray for stray in found(stack) if "waiting" in stray.key]


def test_the_sweep_looks_at_no_attachment_but_those_of_the_originals_that_are_there(
    stack: Stack,
) -> None:
    asked = list[str]()

    def note(*words: object) -> None:
        if "attachments" in (statement := str(words[2])):
            asked.append(statement)

    later = clock.now() + timedelta(hours=2)
    strays.sweep_uploads(stack.resources, now=later)
    engine = stack.resources.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        # Other tests' uploads may still wait for their workers.
        waiting = len(stack.stored("originals/"))
        assert strays.sweep_uploads(stack.resources, now=later) == 0
        assert len(asked) <= waiting
        key = "originals/222222222222"
        stack.resources.objects.put(key, b"left behind", "image/webp")
        assert strays.sweep_uploads(stack.resources, now=later) == 1
        assert not stack.resources.objects.exists(key)
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_the_command_says_what_it_found_and_mends_it_when_asked(stack: Stack) -> None:
    # The bucket's clock can't be moved: what the command finds is what is an hour old.
    sweep = stack.start("sweep", "attachments", "sweep", "--fix", "--json")
    assert sweep.process.wait(30) == 0, sweep.log.read_text()
    assert json.loads(sweep.log.read_text().splitlines()[-1]) == []
