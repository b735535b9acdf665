import threading
import time

import httpx

from storage.redis.notifications import job_topic
from tests.pictures import photo
from tests.stack import Stack


def test_word_of_another_deployments_job_does_not_end_a_wait(
    stack: Stack, client: httpx.Client
) -> None:
    # Redis' channels know no databases: whoever shares the server is heard.
    ended = threading.Event()

    def lie() -> None:
        while not ended.is_set():
            (newest,) = stack.query("SELECT coalesce(max(id), 0) FROM jobs")[0]
            stack.resources.notifier.tell(job_topic(int(str(newest))), "succeeded")
            time.sleep(0.01)

    liar = threading.Thread(target=lie)
    liar.start()
    try:
        reply = client.post("/attachments", files={"file": ("p.jpg", photo(3000, 2000))})
    finally:
        ended.set()
        liar.join()
    assert reply.status_code == 200, reply.text
