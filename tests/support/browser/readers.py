"""Creates a list with public pages, and finds links to these pages in mails."""

import io
import re

import httpx2
from PIL import Image

from devstack.harness.polling import eventually
from tests.support.http.replies import data
from tests.support.lists.people_on_lists import Subscriber, new_list
from tests.support.lists.segments import new_field

TITLE = "The Morning Letter"
WORDING = "I want The Morning Letter by e-mail. I can leave at any time."


def make_list(client: httpx2.Client, title: str = TITLE, **fields: object) -> int:
    """Create a list with a public field of each type, a consent wording, a colour and a logo."""
    for key, kind in (("visits", "number"), ("born", "date"), ("news", "boolean")):
        new_field(client, key, kind, public=True)
    new_field(client, "tea", "choice", public=True, choices=["Green", "Black"])
    content = io.BytesIO()
    Image.new("RGB", (240, 80), "#1d4ed8").save(content, "PNG")
    file = {"file": ("logo.png", content.getvalue(), "image/png")}
    logo = data(client.post("/attachments", files=file))["hash_id"]
    look = {"colour": "#1d4ed8", "logo_hash_id": logo, "sign_up_text": "One letter each morning."}
    return new_list(client, title, consent_wording=WORDING, **{**look, **fields})


def mailed_link(person: Subscriber, path: str) -> str:
    link = re.escape(f"{person.stack.api_url}{path}?") + r"[\w.=&-]+"

    def find_links() -> list[str]:
        return [
            url
            for each in person.stack.mails(person.email)
            for url in re.findall(link, each["text"])
        ]

    links = eventually(find_links, what=f"mail that leads to {path}")
    return str(links[0])
