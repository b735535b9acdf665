import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { ApiError, NotReached, Pressroom } from "pressroom-client";
import { fromPath } from "pressroom-client/node";
import { given, rows, uniqueSlug, wayWith } from "./setting.mjs";

const file = await fromPath(given.photo);

for (const fault of ["429", "503", "lost"]) {
  test(`a call that meets ${fault} is tried again under its key and has one effect`, async () => {
    const way = wayWith([fault]);
    const made = await way.pressroom.uploadAttachment({ file: { ...file, name: `${fault}.jpg` } });
    const [first, second] = await way.seen();
    assert.ok(first.key);
    assert.equal(first.key, second.key);
    const ids = [];
    for await (const each of way.pressroom.listAttachments()) {
      if (each.original_filename === `${fault}.jpg`) ids.push(each.id);
    }
    assert.deepEqual(ids, [made.id]);
  });
}

test("each call has a key of its own, unless it is given one", async () => {
  const { pressroom, seen } = wayWith([]);
  await pressroom.uploadAttachment({ file });
  await pressroom.uploadAttachment({ file });
  await pressroom.uploadAttachment({ file, idempotency_key: "order-7-0123456789" });
  const keys = (await seen()).map((each) => each.key);
  assert.equal(new Set(keys).size, 3);
  assert.equal(keys.at(-1), "order-7-0123456789");
});

test("the pause that is asked for is made", async () => {
  const { pressroom } = wayWith(["wait"]);
  const began = performance.now();
  await pressroom.readMe();
  assert.ok(performance.now() - began >= 990);
});

test("a pause that is too long is the caller's to make", async () => {
  const { pressroom, seen } = wayWith(["hour"]);
  await assert.rejects(pressroom.readMe(), { retryAfter: 3600 });
  assert.equal((await seen()).length, 1);
});

test("a call is tried so often and no more", async () => {
  const often = wayWith(["429", "429", "429", "429"]);
  await assert.rejects(often.pressroom.readMe(), ApiError);
  assert.equal((await often.seen()).length, 3);
  const never = wayWith(["429"], { retries: { maxRetries: 0 } });
  await assert.rejects(never.pressroom.readMe(), ApiError);
  assert.equal((await never.seen()).length, 1);
});

test("a call that may have had its effect is not repeated", async () => {
  const { pressroom, seen } = wayWith(["lost"]);
  await assert.rejects(pressroom.createList({ body: { title: "G", slug: uniqueSlug() } }), NotReached);
  assert.equal((await seen()).length, 1);
});

test("a stream that was sent is not sent again", async () => {
  const { pressroom, seen } = wayWith(["429"]);
  const stream = new Blob([rows(2)]).stream();
  await assert.rejects(pressroom.importMembers({ list_id: 7, file: stream }), ApiError);
  assert.equal((await seen()).length, 1);
});

test("an API that hangs is not waited for without end", async () => {
  const server = createServer(() => undefined).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${server.address().port}`;
  const hanging = new Pressroom(url, { timeout: 0.2, retries: { maxRetries: 0 } });
  await assert.rejects(hanging.checkHealth(), NotReached);
  server.closeAllConnections();
  server.close();
});

test("a stream of a job that breaks off is taken up where it was", async () => {
  const { pressroom, seen } = wayWith(["", "", "cut"]);
  const list = await pressroom.createList({ body: { title: "Garden", slug: uniqueSlug() } });
  const content = new Blob([rows(30_000)]);
  const job = await pressroom.importMembers({ list_id: list.id, file: content });
  const ended = await pressroom.waitForJob(job, { timeout: 90 });
  assert.equal(ended.result.added, 30_000);
  const streams = (await seen()).filter((each) => each.path.endsWith("/events"));
  assert.equal(streams[0].last_event_id, null);
  assert.ok(streams[1].last_event_id);
});
