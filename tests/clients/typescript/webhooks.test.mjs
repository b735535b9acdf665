import assert from "node:assert/strict";
import { test } from "node:test";
import { verifyWebhook, WebhookInvalid } from "pressroom-client";
import { given } from "./setting.mjs";

const { example, messages } = given;

test("the example of the specification verifies", async () => {
  const message = await verifyWebhook(example.secret, example.headers, example.body, Infinity);
  assert.deepEqual(message, JSON.parse(example.body));
});

for (const { name, headers, body, secrets, ok } of messages) {
  test(`a message is believed only if its signature is right: ${name}`, async () => {
    for (const sent of [body, new TextEncoder().encode(body)]) {
      const verified = verifyWebhook(secrets, headers, sent);
      if (ok) assert.deepEqual(await verified, JSON.parse(body));
      else await assert.rejects(verified, WebhookInvalid);
    }
  });
}

test("the headers of a request of the web's own kind are taken", async () => {
  const { headers, body, secrets } = messages[0];
  assert.deepEqual(await verifyWebhook(secrets, new Headers(headers), body), JSON.parse(body));
});

test("a secret that is none is a mistake of the program", async () => {
  const { headers, body } = messages[0];
  await assert.rejects(verifyWebhook("secret!", headers, body), TypeError);
});
