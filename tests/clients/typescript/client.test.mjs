import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import {
  Accepted,
  ApiError,
  AttachmentFailed,
  AttachmentUnfinished,
  JobFailed,
  JobUnfinished,
  Pressroom,
  PressroomError,
  SecretInvalid,
} from "pressroom-client";
import { fromPath } from "pressroom-client/node";
import { newList, pressroom, rows, testInput, uniqueSlug } from "./setting.mjs";

const photo = await fromPath(testInput.photo);
const bytes = new Uint8Array(await photo.content.arrayBuffer());

async function* chunks() {
  yield bytes.slice(0, 1000);
  yield bytes.slice(1000);
}

async function collect(items) {
  const collected = [];
  for await (const item of items) collected.push(item);
  return collected;
}

test("a file is uploaded from a path, bytes, a browser's file and streams", async () => {
  const name = "photo.jpg";
  const uploads = [
    photo,
    { name, content: bytes },
    { name, content: bytes.buffer },
    new File([bytes], name),
    { name, content: new Blob([bytes]).stream() },
    { name, content: chunks() },
    { name, content: createReadStream(testInput.photo) },
  ];
  const attachments = [];
  for (const file of uploads) attachments.push(await pressroom.uploadAttachment({ file }));
  const filenames = attachments.map((attachment) => attachment.original_filename);
  assert.deepEqual(new Set(filenames), new Set([name]));
  assert.equal(new Set(attachments.map((attachment) => attachment.original_checksum)).size, 1);
  assert.deepEqual(new Set(attachments.map((attachment) => attachment.status)), new Set([2]));
  const response = await pressroom.downloadMedia({ filename: attachments[0].filename });
  assert.equal((await response.arrayBuffer()).byteLength, attachments[0].size);
});

test("an error has its code, status, invalid fields and request id", async () => {
  await assert.rejects(pressroom.readAttachment({ hash_id: "0123456789ab" }), (error) => {
    assert.ok(error instanceof ApiError && error instanceof PressroomError);
    assert.equal(error.code, "attachment.not_found");
    assert.equal(error.status, 404);
    assert.ok(error.requestId);
    return true;
  });
  await assert.rejects(pressroom.createList({ body: { title: 7, slug: "garden" } }), (error) => {
    assert.equal(error.status, 422);
    assert.ok(error.errors.some(({ field }) => field === "body.title"));
    return true;
  });
  await assert.rejects(new Pressroom(testInput.api_url).readMe(), { status: 401 });
});

test("each operation is a method of a resource and of the client", async () => {
  const { id } = await pressroom.lists.create({ body: { title: "Garden", slug: uniqueSlug() } });
  const changed = await pressroom.lists.change({ list_id: id, body: { colour: "#1d4ed8" } });
  assert.deepEqual(await pressroom.readList({ list_id: id }), changed);
  assert.deepEqual(await pressroom.lists.read({ list_id: id }), changed);
  const lists = [pressroom.lists.list({ limit: 100 }), pressroom.listLists({ limit: 100 })];
  for (const pages of lists) assert.ok((await collect(pages)).some((list) => list.id === id));
});

test("credentials may be a function", async () => {
  const keys = [testInput.key, "prk_none"];
  const client = new Pressroom(testInput.api_url, { credentials: async () => keys.shift() });
  assert.equal((await client.readMe()).id, testInput.user_id);
  await assert.rejects(client.readMe(), { status: 401 });
});

test("path values can't lead to another path", async () => {
  for (const list_id of ["", ".", ".."]) {
    await assert.rejects(pressroom.readList({ list_id }), TypeError);
  }
});

test("iteration continues through all pages, by cursor and by offset", async () => {
  const list_id = await newList();
  const members = Array.from({ length: 23 }, (_, n) => ({ email: `reader${n}@example.com` }));
  assert.equal(await pressroom.addMembers({ list_id, body: { members } }), 23);
  const emails = (await collect(pressroom.listMembers({ list_id, limit: 5 }))).map((m) => m.email);
  assert.equal(new Set(emails).size, 23);
  assert.equal(emails.length, 23);
  const filtered = await collect(pressroom.listMembers({ list_id, limit: 2, email: "reader1*" }));
  assert.equal(filtered.length, 11);
  const first = await pressroom.listMembers({ list_id, limit: 20 });
  assert.equal(first.items.length, 20);
  assert.equal(first.pagination.total, 23);
  const second = await first.nextPage();
  assert.equal(second.items.length, 3);
  assert.equal(await second.nextPage(), undefined);
  for (let n = 0; n < 4; n++) await newList();
  const lists = (await collect(pressroom.listLists({ limit: 2 }))).map((each) => each.id);
  assert.equal(new Set(lists).size, lists.length);
  assert.ok(lists.length >= 5);
  const none = pressroom.listMembers({ list_id, email: "none@example.com" });
  assert.deepEqual(await collect(none), []);
});

// Consent entries have no ids, so that the whole item is compared.
const itemKey = (item) => item.id ?? item;

test("every collection is iterated to its end", async () => {
  for (const [id, parameters] of Object.entries(testInput.lists)) {
    const name = id.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
    const expected = (await pressroom[name]({ ...parameters, limit: 100 })).items.map(itemKey);
    const iterated = await collect(pressroom[name]({ ...parameters, limit: 1 }));
    assert.deepEqual(iterated.map(itemKey), expected, name);
  }
});

test("waiting for an import reports its progress until its end", async () => {
  const statuses = [];
  const started = await pressroom.importMembers({
    list_id: await newList(),
    file: { name: "members.csv", content: new Blob([rows(300)]) },
  });
  const onProgress = (job) => statuses.push(job.status);
  const job = await pressroom.waitForJob(started, { onProgress, timeout: 60 });
  assert.equal(job.result.added, 300);
  assert.equal(statuses.at(-1), "succeeded");
  const record = await pressroom.readImport({ import_id: job.result.import_id });
  assert.equal(record.filename, "members.csv");
});

test("a large request body is sent from a stream", async () => {
  async function* lines() {
    for (const line of rows(2000).split(/(?<=\n)/)) yield new TextEncoder().encode(line);
  }
  const file = { name: "members.csv", content: lines() };
  const job = await pressroom.importMembers({ list_id: await newList(), file });
  assert.equal((await pressroom.waitForJob(job, { timeout: 60 })).result.added, 2000);
});

test("waiting for a failed job rejects with the code of its error", async () => {
  const file = new Uint8Array(300).map((_, n) => n % 3);
  const job = await pressroom.importMembers({ list_id: await newList(), file });
  await assert.rejects(pressroom.waitForJob(job, { timeout: 60 }), (error) => {
    assert.ok(error instanceof JobFailed);
    assert.equal(error.code, error.job.error.code);
    return true;
  });
});

test("a call returns an accepted job if the work outlasts the wait", async () => {
  const list_id = await newList();
  const members = Array.from({ length: 50 }, (_, n) => ({ email: `reader${n}@example.com` }));
  const accepted = await pressroom.addMembers({ list_id, body: { members }, prefer: "respond-async" });
  assert.ok(accepted instanceof Accepted);
  assert.equal((await pressroom.waitForJob(accepted, { timeout: 60 })).result.added, 50);
});

test("a wait for a job ends after its timeout, and when its signal aborts", async () => {
  const file = new TextEncoder().encode(rows(30_000));
  const job = await pressroom.importMembers({ list_id: await newList(), file });
  await assert.rejects(pressroom.waitForJob(job, { timeout: 0.05 }), JobUnfinished);
  const controller = new AbortController();
  const abortedWait = pressroom.waitForJob(job, { signal: controller.signal });
  controller.abort(new Error("left"));
  await assert.rejects(abortedWait, { message: "left" });
  await pressroom.cancelJob({ job_id: job.id });
});

test("blanks around a key are removed, and a malformed key is never quoted", async () => {
  const spacious = new Pressroom(testInput.api_url, { credentials: `\t${testInput.key}\r\n` });
  assert.equal((await spacious.readMe()).id, (await pressroom.readMe()).id);
  for (const credentials of ["prk_secret\nprk_second", "prk_s\u00e9cret", "prk_sec\0ret", "\n"]) {
    const error = await new Pressroom(testInput.api_url, { credentials }).readMe().catch((reason) => reason);
    assert.ok(error instanceof SecretInvalid);
    assert.ok(!inspect(error).includes("prk_"), inspect(error));
  }
  const headers = { Authorization: "Bearer prk_secret\nprk_second" };
  const error = await pressroom.readMe({ headers }).catch((reason) => reason);
  assert.ok(error instanceof PressroomError);
  assert.ok(!inspect(error).includes("prk_"), inspect(error));
  assert.ok(!inspect(pressroom).includes(testInput.key));
});

test("the client warns once about each ignored name", async (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  const client = new Pressroom(testInput.api_url, { credentials: testInput.key });
  const createList = (more) => client.lists.create({ body: { title: "Tea", slug: uniqueSlug(), ...more } });
  await createList({});
  assert.equal(warn.mock.callCount(), 0);
  for (let time = 0; time < 2; time++) await createList({ confirm_requird: false });
  await createList({ confirm_requird: false, colur: "red" });
  await assert.rejects(client.lists.create({ body: { titel: "Tea", slug: uniqueSlug() } }), ApiError);
  const messages = warn.mock.calls.map((call) => call.arguments[0]);
  assert.equal(messages.length, 3);
  assert.match(messages[0], /ignored body\.confirm_requird in POST \/lists\./);
  assert.match(messages[1], /ignored body\.colur in POST/);
  assert.match(messages[2], /ignored body\.titel in POST/);
});

test("a strict client gets errors for unknown names", async () => {
  const client = new Pressroom(testInput.api_url, { credentials: testInput.key, strict: true });
  const list = { title: "Tea", slug: uniqueSlug() };
  const isUnknown = (error) => error instanceof ApiError && error.code === "request.unknown";
  await assert.rejects(client.lists.create({ body: { ...list, confirm_requird: false } }), isUnknown);
  const { id } = await client.lists.create({ body: list });
  // The call's own preference is sent too.
  const members = [{ email: `${list.slug}@example.com` }];
  const call = (row) =>
    client.members.add({ list_id: id, body: { members: [{ ...members[0], ...row }] }, prefer: "respond-async" });
  await assert.rejects(call({ age: 7 }), isUnknown);
  assert.ok((await call({})) instanceof Accepted);
});

test("blanks around a URL are removed, and a malformed URL is never quoted", async () => {
  const spacious = new Pressroom(` ${testInput.api_url}/\n`, { credentials: testInput.key });
  assert.equal((await spacious.readMe()).id, (await pressroom.readMe()).id);
  const urls = ["prk_secret", "https://prk_secret@example.com", "https://me:prk_secret@example.com"];
  urls.push("https://example.com:prk_secret", "https://example.com/ prk_secret", "ftp://prk_secret", "");
  for (const url of urls) {
    assert.throws(
      () => new Pressroom(url, { credentials: testInput.key }),
      (error) => error instanceof PressroomError && /The URL/.test(error.message) && !inspect(error).includes("prk_"),
    );
  }
});

test("an upload waits until the image is ready", async () => {
  const preference = { prefer: "respond-async", wait: 60 };
  const ready = await pressroom.attachments.upload({ file: photo, ...preference });
  assert.equal(ready.status, 2);
  const file = { name: "photo.jpg", content: bytes.slice(0, 2000) };
  await assert.rejects(pressroom.uploadAttachment({ file, ...preference }), (error) => {
    assert.ok(error instanceof AttachmentFailed && error instanceof PressroomError);
    assert.equal(error.attachment.status, 3);
    return error.code === error.attachment.error.code;
  });
  const answer = { data: { ...ready, status: 1 }, ts: 0 };
  const client = new Pressroom(testInput.api_url, { fetch: async () => Response.json(answer) });
  await assert.rejects(client.attachments.upload({ file: photo, wait: 0.2 }), AttachmentUnfinished);
});

test("an error names the URL of an unreachable or foreign server, and a missing file", async () => {
  const lost = new Pressroom("http://127.0.0.1:9", { retries: { maxRetries: 0 } });
  await assert.rejects(lost.readMe(), { message: /^No answer from http:\/\/127\.0\.0\.1:9: / });
  const fetch = async () => new Response("<p>Not Found", { status: 404 });
  const foreign = new Pressroom("https://proxy.example", { fetch });
  const message = "https://proxy.example/users/me responded with status 404. (http.404, status 404)";
  await assert.rejects(foreign.readMe(), { message, code: "http.404" });
  await assert.rejects(fromPath("missing-photo.jpg"), /missing-photo\.jpg/);
});
