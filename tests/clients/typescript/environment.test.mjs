import assert from "node:assert/strict";
import { afterEach, test } from "node:test";
import { Pressroom, SettingMissing } from "pressroom-client";
import { testInput } from "./setting.mjs";

afterEach(() => {
  delete process.env.PRESSROOM_URL;
  delete process.env.PRESSROOM_KEY;
});

test("a client without arguments reads the URL and the key from the environment", async () => {
  process.env.PRESSROOM_URL = testInput.api_url;
  process.env.PRESSROOM_KEY = testInput.key;
  assert.equal((await new Pressroom().account.read()).id, testInput.user_id);
});

test("a client without arguments names each missing variable", () => {
  assert.throws(() => new Pressroom(), /^SettingMissing: Set PRESSROOM_URL and PRESSROOM_KEY,/);
  process.env.PRESSROOM_URL = testInput.api_url;
  assert.throws(() => new Pressroom(), /^SettingMissing: Set PRESSROOM_KEY,/);
  process.env.PRESSROOM_KEY = testInput.key;
  process.env.PRESSROOM_URL = "";
  assert.throws(() => new Pressroom(), /^SettingMissing: Set PRESSROOM_URL,/);
});

test("credentials in the options replace the key in the environment", async () => {
  process.env.PRESSROOM_URL = testInput.api_url;
  process.env.PRESSROOM_KEY = "prk_wrong";
  const pressroom = new Pressroom(undefined, { credentials: testInput.key });
  assert.equal((await pressroom.account.read()).id, testInput.user_id);
});

test("empty credentials in the options fall back to the key in the environment", async () => {
  process.env.PRESSROOM_URL = testInput.api_url;
  process.env.PRESSROOM_KEY = testInput.key;
  const pressroom = new Pressroom(undefined, { credentials: "" });
  assert.equal((await pressroom.account.read()).id, testInput.user_id);
});

test("a client with a URL never sends the key in the environment", async () => {
  process.env.PRESSROOM_KEY = testInput.key;
  await assert.rejects(new Pressroom(testInput.api_url).account.read(), { status: 401 });
});

test("a client without environment variables names the missing values", () => {
  const { process } = globalThis;
  delete globalThis.process;
  try {
    assert.throws(() => new Pressroom(), SettingMissing);
  } finally {
    globalThis.process = process;
  }
});
