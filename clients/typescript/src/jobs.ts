import { ApiError, JobFailed, JobUnfinished, NotReached, PressroomError } from "./errors.js";
import type { ServerEvent } from "./events.js";
import type { JobRecord } from "./generated/document.js";
import { sleep } from "./retries.js";

export type Job = JobRecord;

export interface Waiting {
  /** The longest wait, in seconds. The job continues after a timeout. */
  timeout?: number;
  signal?: AbortSignal;
}

/** A function that opens the event stream of a job. The stream starts after the event with the id. */
export type Open = (
  lastEventId: string | undefined,
  signal: AbortSignal,
) => AsyncIterable<ServerEvent>;

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const FIRST_PAUSE_SECONDS = 0.2;
const MAX_PAUSE_SECONDS = 10;

/** Yield the job after each change, until the job ends. Reconnects after a lost connection. */
export async function* watch(
  jobId: number,
  open: Open,
  { timeout, signal }: Waiting,
): AsyncGenerator<Job, void, undefined> {
  const ending = new AbortController();
  const onAbort = () => ending.abort(signal?.reason);
  const late = () => ending.abort(new JobUnfinished(`Job ${jobId} has not ended yet; it goes on.`));
  const timer = timeout === undefined ? undefined : setTimeout(late, timeout * 1000);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", onAbort, { once: true });
  try {
    yield* readStates(open, ending.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    // Close the stream, because the caller may stop before the end of the stream.
    ending.abort(new PressroomError("The job is watched no more."));
  }
}

/** Wait until a job succeeds. Rejects with JobFailed, or with JobUnfinished after the timeout. */
export async function wait(
  jobs: AsyncIterable<Job>,
  onProgress: ((job: Job) => void) | undefined,
): Promise<Job> {
  for await (const job of jobs) {
    onProgress?.(job);
    if (job.status === "succeeded") return job;
    if (ENDED.has(job.status)) throw new JobFailed(job);
  }
  throw new PressroomError("A watched job ends.");
}

async function* readStates(open: Open, signal: AbortSignal): AsyncGenerator<Job, void, undefined> {
  let lastId: string | undefined;
  let pause = FIRST_PAUSE_SECONDS;
  for (;;) {
    try {
      for await (const event of open(lastId, signal)) {
        lastId = event.id || lastId;
        pause = FIRST_PAUSE_SECONDS;
        const job = JSON.parse(event.data) as Job;
        yield job;
        if (ENDED.has(job.status)) return;
      }
    } catch (error) {
      if (!canReconnect(error)) throw error;
    }
    await sleep(pause, signal);
    pause = Math.min(pause * 2, MAX_PAUSE_SECONDS);
  }
}

/**
 * Return whether the stream may be opened again. Possible reasons are a lost connection, too many
 * streams of the caller, and an API process that is shutting down.
 */
function canReconnect(error: unknown): boolean {
  if (error instanceof ApiError) return error.status === 429 || error.status === 503;
  return error instanceof NotReached;
}
