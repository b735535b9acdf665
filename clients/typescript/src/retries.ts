import { apiErrorOf } from "./errors.js";

/** How often a call is tried again (0: never), and the longest pause that it is worth, in seconds. */
export interface Retries {
  maxRetries: number;
  maxWait: number;
}

export const RETRIES: Retries = { maxRetries: 2, maxWait: 60 };

const FIRST_PAUSE_SECONDS = 0.5;
const MAX_PAUSE_SECONDS = 8;

/** The seconds before the next try; undefined: there is none. `attempt` counts from 0. */
export function pauseBefore(retries: Retries, attempt: number, asked?: number): number | undefined {
  if (attempt >= retries.maxRetries) return undefined;
  if (asked !== undefined) return asked <= retries.maxWait ? asked : undefined;
  const longest = Math.min(FIRST_PAUSE_SECONDS * 2 ** attempt, MAX_PAUSE_SECONDS);
  // Callers who failed together come back apart.
  return Math.min(longest / 2 + (Math.random() * longest) / 2, retries.maxWait);
}

/** The seconds that an answer asks to wait, which it may say as a time too. */
export function retryAfter(headers: Headers): number | undefined {
  const value = headers.get("retry-after")?.trim() ?? "";
  if (/^[0-9]+$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/**
 * Whether the same call may succeed later. An error that says when to come back changed nothing, so
 * that any call may be sent again.
 */
export async function isWorthAnotherTry(
  response: Response,
  call: { isRepeatable: boolean; hasKey: boolean },
): Promise<boolean> {
  if (response.status === 409 && call.hasKey) {
    // The first of two calls with this key is still at work.
    const { code } = await apiErrorOf(response.clone(), undefined);
    return code === "idempotency.in_progress";
  }
  if (response.status === 503) return call.isRepeatable || response.headers.has("retry-after");
  return response.status === 429;
}

/** Wait for so many seconds. Rejects with the signal's reason once it is aborted. */
export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, seconds * 1000);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
