"""The event stream of a job, read by a page of another origin as docs/quickstart.md says."""

from collections.abc import Callable

import httpx2
from playwright.sync_api import Page

from tests.browser.foreign_site import Site
from tests.contract.bulk import of_addresses, upload
from tests.contract.replies import data
from tests.docs import markdown
from tests.stack import Owner, Stack
from tests.subscribers import new_list

WATCH = """
async ([API, KEY, jobId]) => {
  const AUTHORIZATION = { Authorization: `Bearer ${KEY}` };
  %s
  const states = [];
  const job = await watch(jobId, (each) => states.push(each.status));
  return { job, states };
}
"""


def sample() -> str:
    """The function of the page, without the lines that call it."""
    [block] = [
        block.text
        for block in markdown.blocks(markdown.ROOT / "docs" / "quickstart.md")
        if block.language == "js" and "async function watch" in block.text
    ]
    return block.partition("\nconst [newest]")[0]


def test_page_of_another_origin_watches_a_job_until_it_ends(
    stack: Stack, client: httpx2.Client, owner: Owner, open_page: Callable[..., Page]
) -> None:
    addresses = of_addresses(*(f"reader{number}@example.com" for number in range(2000)))
    reply = upload(client, new_list(client), addresses, prefer="respond-async")
    job_id = data(reply, 202)["id"]
    site = Site()
    try:
        page = open_page(site.url)
        seen = page.evaluate(WATCH % sample(), [stack.api_url, owner.key, job_id])
    finally:
        site.close()
    assert seen["job"]["id"] == job_id
    assert seen["job"]["result"]["added"] == 2000
    assert seen["states"][-1] == seen["job"]["status"] == "succeeded"
