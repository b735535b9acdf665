import assert from "node:assert/strict";
import { test } from "node:test";
import { OAuth, Pressroom, tokenSource } from "pressroom-client";
import { testInput } from "./setting.mjs";

const SCOPES = ["credit.read", "attachment"];
const oauth = new OAuth(testInput.api_url, {
  clientId: testInput.program.client_id,
  clientSecret: testInput.program.secret,
  redirectUri: testInput.program.redirect_uri,
});

/** Answer the consent page, and return the URL to which the person is redirected. */
async function answerConsent(url, decision = "allow") {
  const headers = { Cookie: `pressroom_session=${testInput.session}`, Origin: testInput.api_url };
  const page = await (await fetch(url, { headers })).text();
  const csrf_token = /name="csrf_token" value="([^"]+)"/.exec(page)[1];
  const scopeFields = Object.fromEntries(SCOPES.map((scope) => [`scope.${scope}`, "on"]));
  const body = new URLSearchParams({ csrf_token, decision, ...scopeFields });
  const reply = await fetch(url, { method: "POST", headers, body, redirect: "manual" });
  assert.equal(reply.status, 303);
  return reply.headers.get("location");
}

test("a client obtains, refreshes and revokes tokens", async () => {
  const login = await oauth.begin(SCOPES);
  const tokens = await oauth.finish(login, await answerConsent(login.url));
  assert.deepEqual(new Set(tokens.scope.split(" ")), new Set(SCOPES));
  const storedTokens = [];
  const expired = { ...tokens, expiresAt: Date.now() / 1000 };
  const credentials = tokenSource(oauth, expired, (renewed) => void storedTokens.push(renewed));
  const client = new Pressroom(testInput.api_url, { credentials });
  // Concurrent calls refresh the tokens only once.
  const balances = await Promise.all([client.readBalance(), client.readBalance(), client.readBalance()]);
  assert.deepEqual(new Set(balances.map((each) => each.user_id)), new Set([testInput.user_id]));
  assert.equal(storedTokens.length, 1);
  await oauth.revoke(storedTokens[0]);
  await assert.rejects(oauth.refresh(storedTokens[0]), { code: "invalid_grant" });
});

test("a redirect URL of another login or server is rejected", async () => {
  const login = await oauth.begin(SCOPES);
  const url = await answerConsent(login.url);
  await assert.rejects(oauth.finish(await oauth.begin(SCOPES), url), { code: "state.mismatch" });
  const foreignUrl = `${testInput.program.redirect_uri}?code=c&state=${login.state}`;
  for (const invalidUrl of [foreignUrl, `${foreignUrl}&iss=https://evil.example`]) {
    await assert.rejects(oauth.finish(login, invalidUrl), { code: "iss.mismatch" });
  }
});

test("finish rejects with an error if the person denies access", async () => {
  const login = await oauth.begin(SCOPES);
  const url = await answerConsent(login.url, "deny");
  await assert.rejects(oauth.finish(login, url), { code: "access_denied" });
});
