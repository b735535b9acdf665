import { SecretInvalid, WebhookInvalid } from "./errors.js";

const encoder = new TextEncoder();

type HeadersLike = Headers | Readonly<Record<string, string | string[] | undefined>>;

/**
 * Verify the signature of a webhook (Standard Webhooks 1.0), and return its message.
 *
 * `body` is the unparsed body of the request. Pass the old and the new secret while you change the
 * secret. Rejects with WebhookInvalid for an invalid signature or an outdated message, and with
 * SecretInvalid for a malformed secret. `tolerance` is the maximum difference between the message's time
 * and the current time, in seconds. A message may arrive twice with the same header `webhook-id`.
 */
export async function verifyWebhook<T = unknown>(
  secrets: string | readonly string[],
  headers: HeadersLike,
  body: string | Uint8Array,
  tolerance = 300,
): Promise<T> {
  const id = requireHeader(headers, "webhook-id");
  const sentAt = requireHeader(headers, "webhook-timestamp");
  const signatureHeader = requireHeader(headers, "webhook-signature");
  checkTime(sentAt, tolerance);
  const raw = typeof body === "string" ? encoder.encode(body) : body;
  const signed = concatenate(encoder.encode(`${id}.${sentAt}.`), raw);
  const signatures = signatureHeader.split(" ").filter((signature) => signature.startsWith("v1,"));
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    const key = await importKey(secret);
    for (const signature of signatures) {
      const bytes = decodeBase64(signature.slice(3));
      if (bytes && (await crypto.subtle.verify("HMAC", key, bytes, signed))) {
        return JSON.parse(new TextDecoder().decode(raw)) as T;
      }
    }
  }
  throw new WebhookInvalid("No signature is right.");
}

function requireHeader(headers: HeadersLike, name: string): string {
  const value =
    headers instanceof Headers
      ? headers.get(name)
      : Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  if (typeof value !== "string") throw new WebhookInvalid(`The header ${name} is missing.`);
  return value;
}

function checkTime(sentAt: string, tolerance: number): void {
  if (!/^[0-9]+$/.test(sentAt)) throw new WebhookInvalid("The header webhook-timestamp is no time.");
  if (Math.abs(Date.now() / 1000 - Number(sentAt)) > tolerance) {
    throw new WebhookInvalid("The message is too old, or its time has not come.");
  }
}

async function importKey(secret: string): Promise<CryptoKey> {
  const bytes = decodeBase64(secret.trim().replace(/^whsec_/, ""));
  if (!bytes) throw new SecretInvalid("A webhook's secret begins with whsec_ and is base64.");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function decodeBase64(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function concatenate(first: Uint8Array, second: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(first.length + second.length);
  bytes.set(first);
  bytes.set(second, first.length);
  return bytes;
}
