import { ApiError, JobFailed, JobUnfinished, NotReached, PressroomError } from "./errors.js";
import type { ServerEvent } from "./events.js";
import type { operations } from "./generated/document.js";
import { sleep } from "./retries.js";

export type Job = operations["read_job"]["responses"][200]["content"]["application/json"]["data"];

export interface Waiting {
  /** Seconds after which a job that has not ended is left alone; it goes on. */
  timeout?: number;
  signal?: AbortSignal;
}

/** Opens the job's stream, after the event with this id. */
export type Open = (
  lastEventId: string | undefined,
  signal: AbortSignal,
) => AsyncIterable<ServerEvent>;

const ENDED = new Set(["succeeded", "failed", "cancelled"]);
const FIRST_PAUSE_SECONDS = 0.2;
const MAX_PAUSE_SECONDS = 10;

/** The job at each change, the last time when it has ended. A stream that breaks off is opened again. */
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
    yield* states(open, ending.signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", onAbort);
    // Its caller may have left before the end of the stream.
    ending.abort(new PressroomError("The job is watched no more."));
  }
}

/** The job once it has succeeded. Rejects with JobFailed, and with JobUnfinished after the timeout. */
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

async function* states(open: Open, signal: AbortSignal): AsyncGenerator<Job, void, undefined> {
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
      if (!mayGoOn(error)) throw error;
    }
    await sleep(pause, signal);
    pause = Math.min(pause * 2, MAX_PAUSE_SECONDS);
  }
}

/** A lost connection, too many streams of one caller, or a process that is about to end. */
function mayGoOn(error: unknown): boolean {
  if (error instanceof ApiError) return error.status === 429 || error.status === 503;
  return error instanceof NotReached;
}
