import assert from "node:assert/strict";
import { test } from "node:test";
import { SecretInvalid, verifyWebhook, WebhookInvalid } from "pressroom-client";
import { testInput } from "./setting.mjs";

const { example, messages } = testInput;

test("the example of the webhook specification is verified", async () => {
  const message = await verifyWebhook(example.secret, example.headers, example.body, Infinity);
  assert.deepEqual(message, JSON.parse(example.body));
});

for (const { name, headers, body, secrets, ok } of messages) {
  test(`a message is accepted only with a valid signature: ${name}`, async () => {
    for (const content of [body, new TextEncoder().encode(body)]) {
      const verified = verifyWebhook(secrets, headers, content);
      if (ok) assert.deepEqual(await verified, JSON.parse(body));
      else await assert.rejects(verified, WebhookInvalid);
    }
  });
}

test("the headers may be an instance of the class Headers", async () => {
  const { headers, body, secrets } = messages[0];
  assert.deepEqual(await verifyWebhook(secrets, new Headers(headers), body), JSON.parse(body));
});

test("a malformed secret raises an error of the client", async () => {
  const { headers, body } = messages[0];
  await assert.rejects(verifyWebhook("secret!", headers, body), SecretInvalid);
});
