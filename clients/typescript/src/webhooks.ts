import { WebhookInvalid } from "./errors.js";

const encoder = new TextEncoder();

type HeadersLike = Headers | Readonly<Record<string, string | string[] | undefined>>;

/**
 * The message of a webhook, once its signature is found to be right (Standard Webhooks 1.0).
 *
 * `body` is the request's body as it came, not parsed. While a secret is being changed, give both.
 * Rejects with WebhookInvalid, also for a message that is `tolerance` seconds older or newer than now.
 * A message may come twice: its header `webhook-id` is the same then.
 */
export async function verifyWebhook<T = unknown>(
  secrets: string | readonly string[],
  headers: HeadersLike,
  body: string | Uint8Array,
  tolerance = 300,
): Promise<T> {
  const [id, sentAt, given] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) =>
    required(headers, name),
  ) as [string, string, string];
  checkTime(sentAt, tolerance);
  const raw = typeof body === "string" ? encoder.encode(body) : body;
  const signed = joined(encoder.encode(`${id}.${sentAt}.`), raw);
  const signatures = given.split(" ").filter((each) => each.startsWith("v1,"));
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const key = await keyOf(secret);
    for (const signature of signatures) {
      const bytes = bytesOf(signature.slice(3));
      if (bytes && (await crypto.subtle.verify("HMAC", key, bytes, signed))) {
        return JSON.parse(new TextDecoder().decode(raw)) as T;
      }
    }
  }
  throw new WebhookInvalid("No signature is right.");
}

function required(headers: HeadersLike, name: string): string {
  const value =
    headers instanceof Headers
      ? headers.get(name)
      : Object.entries(headers).find(([each]) => each.toLowerCase() === name)?.[1];
  if (typeof value !== "string") throw new WebhookInvalid(`The header ${name} is missing.`);
  return value;
}

function checkTime(sentAt: string, tolerance: number): void {
  if (!/^[0-9]+$/.test(sentAt)) throw new WebhookInvalid("The header webhook-timestamp is no time.");
  if (Math.abs(Date.now() / 1000 - Number(sentAt)) > tolerance) {
    throw new WebhookInvalid("The message is too old, or its time has not come.");
  }
}

function keyOf(secret: string): Promise<CryptoKey> {
  const bytes = bytesOf(secret.replace(/^whsec_/, ""));
  if (!bytes) throw new TypeError("A webhook's secret begins with whsec_ and is base64.");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function joined(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(first.length + second.length);
  both.set(first);
  both.set(second, first.length);
  return both;
}
