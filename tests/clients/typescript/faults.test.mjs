import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { ApiError, NotReached, Pressroom } from "pressroom-client";
import { fromPath } from "pressroom-client/node";
import { createFaultyClient, rows, testInput, uniqueSlug } from "./setting.mjs";

const file = await fromPath(testInput.photo);

for (const fault of ["429", "503", "lost"]) {
  test(`a call that meets ${fault} is retried with the same key and has one effect`, async () => {
    const faulty = createFaultyClient([fault]);
    const upload = { ...file, name: `${fault}.jpg` };
    const attachment = await faulty.pressroom.uploadAttachment({ file: upload });
    const [first, second] = await faulty.listReceivedCalls();
    assert.ok(first.key);
    assert.equal(first.key, second.key);
    const ids = [];
    for await (const each of faulty.pressroom.listAttachments()) {
      if (each.original_filename === `${fault}.jpg`) ids.push(each.id);
    }
    assert.deepEqual(ids, [attachment.id]);
  });
}

test("each call has its own idempotency key, unless the caller passes one", async () => {
  const { pressroom, listReceivedCalls } = createFaultyClient([]);
  await pressroom.uploadAttachment({ file });
  await pressroom.uploadAttachment({ file });
  await pressroom.uploadAttachment({ file, idempotency_key: "order-7-0123456789" });
  const keys = (await listReceivedCalls()).map((each) => each.key);
  assert.equal(new Set(keys).size, 3);
  assert.equal(keys.at(-1), "order-7-0123456789");
});

test("a retry waits as long as Retry-After asks", async () => {
  const { pressroom } = createFaultyClient(["wait"]);
  const startedAt = performance.now();
  await pressroom.readMe();
  assert.ok(performance.now() - startedAt >= 990);
});

test("a call rejects with an error if Retry-After is too long", async () => {
  const { pressroom, listReceivedCalls } = createFaultyClient(["hour"]);
  await assert.rejects(pressroom.readMe(), { retryAfter: 3600 });
  assert.equal((await listReceivedCalls()).length, 1);
});

test("the number of retries is limited", async () => {
  const failing = createFaultyClient(["429", "429", "429", "429"]);
  await assert.rejects(failing.pressroom.readMe(), ApiError);
  assert.equal((await failing.listReceivedCalls()).length, 3);
  const withoutRetries = createFaultyClient(["429"], { retries: { maxRetries: 0 } });
  await assert.rejects(withoutRetries.pressroom.readMe(), ApiError);
  assert.equal((await withoutRetries.listReceivedCalls()).length, 1);
});

test("a lost call without an idempotency key is not retried", async () => {
  const { pressroom, listReceivedCalls } = createFaultyClient(["lost"]);
  await assert.rejects(pressroom.createList({ body: { title: "G", slug: uniqueSlug() } }), NotReached);
  assert.equal((await listReceivedCalls()).length, 1);
});

test("a consumed stream is not sent again", async () => {
  const { pressroom, listReceivedCalls } = createFaultyClient(["429"]);
  const stream = new Blob([rows(2)]).stream();
  await assert.rejects(pressroom.importMembers({ list_id: 7, file: stream }), ApiError);
  assert.equal((await listReceivedCalls()).length, 1);
});

test("a call to a hanging API times out", async () => {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const hanging = new Pressroom(url, { timeout: 0.2, retries: { maxRetries: 0 } });
  await assert.rejects(hanging.checkHealth(), NotReached);
  server.closeAllConnections();
  server.close();
});

test("a broken stream of job events is resumed", async () => {
  const { pressroom, listReceivedCalls } = createFaultyClient(["", "", "cut"]);
  const list = await pressroom.createList({ body: { title: "Garden", slug: uniqueSlug() } });
  const content = new Blob([rows(30_000)]);
  const job = await pressroom.importMembers({ list_id: list.id, file: content });
  const finishedJob = await pressroom.waitForJob(job, { timeout: 90 });
  assert.equal(finishedJob.result.added, 30_000);
  const streams = (await listReceivedCalls()).filter((each) => each.path.endsWith("/events"));
  assert.equal(streams[0].last_event_id, null);
  assert.ok(streams[1].last_event_id);
});
