"""Tests of the n8n workflow in docs/journeys. Node.js runs the code of the workflow's nodes."""

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.support.clients.signed_messages import OLD_SECRET, SECRET, build_messages, sign_message
from tests.support.documents import markdown
from tests.support.http.openapi import openapi_document
from tests.support.prerequisites import skip_or_fail

WORKFLOW = json.loads((markdown.ROOT / "docs" / "journeys" / "n8n-welcome.json").read_text())
NODES = {each["name"]: each["parameters"] for each in WORKFLOW["nodes"]}
VERIFYING = "Verify the signature"
REQUESTING = "Request the delivery"
SENDING = "Send the mail"
SEGMENT_ID = 4713
EVENT: dict[str, Any] = {
    "id": 48213,
    "type": "segment.entered",
    "list_id": 4711,
    "data": {"segment_id": SEGMENT_ID, "user_id": 8123456789012345, "entry": 1},
}
ITEM = {"id": "msg_1", "list_id": 4711, **EVENT["data"]}
# Runs a node's code as n8n does, and prints the result, the sent mails and the stored data.
_DRIVER = """
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
const { code, item, body, env, state, event } = JSON.parse(await text(process.stdin));
const mails = [];
const createTransport = (url) => ({ sendMail: async (mail) => mails.push({ url, ...mail }) });
const require = createRequire("/");
const load = (name) => (name === "nodemailer" ? { createTransport } : require(name));
const AsyncFunction = (async () => {}).constructor;
const names = ["$input", "$env", "$getWorkflowStaticData", "$", "require"];
const first = (json) => ({ first: () => ({ json }) });
const run = new AsyncFunction(...names, code);
const helpers = { getBinaryDataBuffer: async () => Buffer.from(body ?? "") };
const values = [first(item), env, () => state, () => first(event), load];
const outcome = await run.call({ helpers }, ...values).then(
  (result) => ({ result: result.map(({ json }) => json) }),
  ({ message }) => ({ error: message }),
);
console.log(JSON.stringify({ ...outcome, mails, state }));
"""


def run_code(node: str, **values: Any) -> Any:
    node_path = shutil.which("node")
    if node_path is None:
        skip_or_fail("the n8n workflow needs Node.js")
    environment = {"WEBHOOK_SECRET": SECRET, "SEGMENT": str(SEGMENT_ID), "SMTP_URL": "smtp://mail"}
    given = {"code": NODES[node]["jsCode"], "env": environment, "state": {}, **values}
    completed = subprocess.run(
        [node_path, "--input-type=module", "-e", _DRIVER],
        check=False,
        input=json.dumps(given),
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


def verify(
    body: bytes, headers: dict[str, str], secret: str = SECRET, state: dict[str, Any] | None = None
) -> Any:
    lower_case = {name.lower(): value for name, value in headers.items()}
    environment = {"WEBHOOK_SECRET": secret, "SEGMENT": str(SEGMENT_ID)}
    return run_code(
        VERIFYING,
        item={"headers": lower_case},
        body=body.decode(),
        env=environment,
        state=state or {},
    )


def build_body(**changes: Any) -> bytes:
    event = {**EVENT, "data": {**EVENT["data"], **changes}}
    return json.dumps({"type": event["type"], "data": event}).encode()


@pytest.mark.parametrize("secrets", [(SECRET,), (OLD_SECRET, SECRET)])
def test_signed_entry_is_accepted(secrets: tuple[str, ...]) -> None:
    body = build_body()
    outcome = verify(body, sign_message(body, secrets=secrets))
    assert outcome["result"] == [ITEM]


@pytest.mark.parametrize("name", [each["name"] for each in build_messages() if not each["ok"]])
def test_wrong_signature_is_rejected(name: str) -> None:
    # Sign the message again, because the test may run minutes after its collection.
    messages: list[dict[str, Any]] = build_messages()
    [message] = [each for each in messages if each["name"] == name]
    outcome = verify(message["body"].encode(), message["headers"], message["secrets"][0])
    assert outcome["error"] in (
        "The signature is wrong.",
        "The webhook is too old, or has no time.",
    )


@pytest.mark.parametrize("changes", [{"entry": 2}, {"segment_id": SEGMENT_ID + 1}])
def test_other_entries_cause_no_mail(changes: dict[str, int]) -> None:
    body = build_body(**changes)
    assert verify(body, sign_message(body))["result"] == []


def test_exit_and_finished_webhook_cause_no_mail() -> None:
    body = build_body()
    outcome = verify(body, sign_message(body), state={"sent": ["msg_1"]})
    assert outcome["result"] == []
    body = body.replace(b"segment.entered", b"segment.left")
    assert verify(body, sign_message(body))["result"] == []


def test_mail_has_the_headers_of_the_row_and_is_recorded() -> None:
    row = {
        "email": "ada@example.com",
        "list_id_header": "<garden.example.com>",
        "list_unsubscribe_header": "<https://press.example/unsubscribe?trace_id=t>",
        "list_unsubscribe_post_header": "List-Unsubscribe=One-Click",
        "delivery_id": "d1",
    }
    state = {"sent": ["msg_0"]}
    values: dict[str, Any] = {"event": ITEM, "state": state}
    outcome = run_code(SENDING, item={"data": {"members": [row]}}, **values)
    [mail] = outcome["mails"]
    assert mail["url"] == "smtp://mail"
    assert mail["to"] == "ada@example.com"
    assert mail["messageId"] == f"<welcome.{SEGMENT_ID}.{ITEM['user_id']}.1.0@example.com>"
    assert "Unsubscribe: https://press.example/unsubscribe?trace_id=t\n" in mail["text"]
    assert mail["headers"] == {
        "List-Id": row["list_id_header"],
        "List-Unsubscribe": row["list_unsubscribe_header"],
        "List-Unsubscribe-Post": row["list_unsubscribe_post_header"],
        "X-Pressroom-Delivery": "d1",
    }
    assert outcome["state"] == {"sent": ["msg_0", "msg_1"]}
    outcome = run_code(SENDING, item={"data": {"members": []}}, **values)
    assert outcome["mails"] == []
    assert outcome["state"] == {"sent": ["msg_0", "msg_1"]}


def test_request_matches_the_openapi_document() -> None:
    document: dict[str, Any] = openapi_document()
    request = NODES[REQUESTING]
    path = request["url"].replace("={{ $env.PRESSROOM_URL }}", "")
    path = path.replace("{{ $json.list_id }}", "{list_id}")
    operation = document["paths"][path][request["method"].lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    sent_fields = re.findall(r"(\w+):", request["jsonBody"])
    assert set(sent_fields) == set(schema["required"])
    schemas = document["components"]["schemas"]
    row = schemas["DeliveriesRecord"]["properties"]["members"]["items"]["$ref"].rpartition("/")[2]
    read_fields = re.findall(r"member\.(\w+)", NODES[SENDING]["jsCode"])
    assert read_fields
    assert set(read_fields) <= set(schemas[row]["properties"])
