import assert from "node:assert/strict";
import { test } from "node:test";
import { OAuth, Pressroom, tokenSource } from "pressroom-client";
import { given } from "./setting.mjs";

const SCOPES = ["credit.read", "attachment"];
const login = new OAuth(given.api_url, {
  clientId: given.program.client_id,
  clientSecret: given.program.secret,
  redirectUri: given.program.redirect_uri,
});

/** The URL to which the person comes back after the consent page. */
async function returned(url, decision = "allow") {
  const headers = { Cookie: `pressroom_session=${given.session}`, Origin: given.api_url };
  const page = await (await fetch(url, { headers })).text();
  const csrf_token = /name="csrf_token" value="([^"]+)"/.exec(page)[1];
  const ticked = Object.fromEntries(SCOPES.map((scope) => [`scope.${scope}`, "on"]));
  const body = new URLSearchParams({ csrf_token, decision, ...ticked });
  const reply = await fetch(url, { method: "POST", headers, body, redirect: "manual" });
  assert.equal(reply.status, 303);
  return reply.headers.get("location");
}

test("a program gets tokens, renews them and ends them", async () => {
  const begun = await login.begin(SCOPES);
  const tokens = await login.finish(begun, await returned(begun.url));
  assert.deepEqual(new Set(tokens.scope.split(" ")), new Set(SCOPES));
  const kept = [];
  const expired = { ...tokens, expiresAt: Date.now() / 1000 };
  const credentials = tokenSource(login, expired, (renewed) => void kept.push(renewed));
  const client = new Pressroom(given.api_url, { credentials });
  // Calls at the same time renew the token once.
  const balances = await Promise.all([client.readBalance(), client.readBalance(), client.readBalance()]);
  assert.deepEqual(new Set(balances.map((each) => each.user_id)), new Set([given.user_id]));
  assert.equal(kept.length, 1);
  await login.revoke(kept[0]);
  await assert.rejects(login.refresh(kept[0]), { code: "invalid_grant" });
});

test("a URL of another login or server gives no tokens", async () => {
  const begun = await login.begin(SCOPES);
  const url = await returned(begun.url);
  await assert.rejects(login.finish(await login.begin(SCOPES), url), { code: "state.mismatch" });
  const foreign = `${given.program.redirect_uri}?code=c&state=${begun.state}`;
  for (const each of [foreign, `${foreign}&iss=https://evil.example`]) {
    await assert.rejects(login.finish(begun, each), { code: "iss.mismatch" });
  }
});

test("a person who says no is an error", async () => {
  const begun = await login.begin(SCOPES);
  const url = await returned(begun.url, "deny");
  await assert.rejects(login.finish(begun, url), { code: "access_denied" });
});
