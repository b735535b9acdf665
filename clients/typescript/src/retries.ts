import { createApiError } from "./errors.js";

/** The limits of retries. */
export interface Retries {
  /** The maximum number of retries of a call. 0 disables retries. */
  maxRetries: number;
  /** The longest pause before a retry, in seconds. */
  maxWait: number;
}

export const RETRIES: Retries = { maxRetries: 2, maxWait: 60 };

const FIRST_PAUSE_SECONDS = 0.5;
const MAX_PAUSE_SECONDS = 8;

/**
 * Return the seconds before the next attempt, or undefined if no attempt is left. `attempt` is the
 * number of previous retries. `required` is the pause that the API requires, in seconds.
 */
export function pauseBefore(retries: Retries, attempt: number, required?: number): number | undefined {
  if (attempt >= retries.maxRetries) return undefined;
  if (required !== undefined) return required <= retries.maxWait ? required : undefined;
  const longest = Math.min(FIRST_PAUSE_SECONDS * 2 ** attempt, MAX_PAUSE_SECONDS);
  // The random pause prevents clients that failed together from retrying together.
  return Math.min(longest / 2 + (Math.random() * longest) / 2, retries.maxWait);
}

/**
 * Return the pause that the header Retry-After requires, in seconds. The header may contain a number of
 * seconds or a time.
 */
export function readRetryAfter(headers: Headers): number | undefined {
  const value = headers.get("retry-after")?.trim() ?? "";
  if (/^[0-9]+$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/**
 * Return whether the same call may succeed later. An error response with Retry-After means that the API
 * didn't execute the call, so any call can be retried.
 */
export async function canRetry(
  response: Response,
  call: { isRepeatable: boolean; hasKey: boolean },
): Promise<boolean> {
  if (response.status === 409 && call.hasKey) {
    // The API still executes an earlier attempt with the same key.
    const { code } = await createApiError(response.clone(), undefined);
    return code === "idempotency.in_progress";
  }
  if (response.status === 503) return call.isRepeatable || response.headers.has("retry-after");
  return response.status === 429;
}

/** Wait for a number of seconds. Rejects with the signal's reason if the signal is aborted. */
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
