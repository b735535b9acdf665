import { Accepted, Calls, type ClientOptions } from "./calls.js";
import { readConnection } from "./environment.js";
import { Operations } from "./generated/operations.js";
import { type Job, wait, type Waiting, watch } from "./jobs.js";

/**
 * A client of a Pressroom API for one caller, such as
 * `new Pressroom("https://press.example.com", { credentials: "prk_…", strict: true })`.
 * Each operation is a method of a resource, such as `lists.create`. Each operation is also a method of the
 * client, with the operation's name in the OpenAPI document, in camel case.
 */
export class Pressroom extends Operations {
  /**
   * Without `baseUrl`, the client reads the URL from the environment variable PRESSROOM_URL. Unless the
   * options contain credentials, the client also reads the API key from PRESSROOM_KEY.
   */
  constructor(baseUrl?: string, options: ClientOptions = {}) {
    super(baseUrl === undefined ? new Calls(...readConnection(options)) : new Calls(baseUrl, options));
  }

  /** Yield the job after each change, until the job ends. Reconnects after a lost connection. */
  watchJob(job: number | Accepted | Job, waiting: Waiting = {}): AsyncGenerator<Job, void, undefined> {
    const jobId = idOf(job);
    return watch(
      jobId,
      (lastId, signal) =>
        this.jobs.streamEvents(
          { job_id: jobId },
          { signal, ...(lastId ? { headers: { "Last-Event-ID": lastId } } : {}) },
        ),
      waiting,
    );
  }

  /**
   * Wait until a job succeeds, and return the job. `onProgress` is called with the job after each
   * change. Rejects with JobFailed if the job fails or is cancelled, and with JobUnfinished after
   * `timeout` seconds.
   */
  waitForJob(
    job: number | Accepted | Job,
    { onProgress, ...waiting }: Waiting & { onProgress?: (job: Job) => void } = {},
  ): Promise<Job> {
    return wait(this.watchJob(job, waiting), onProgress);
  }
}

function idOf(job: number | Accepted | Job): number {
  if (typeof job === "number") return job;
  return job instanceof Accepted ? job.jobId : job.id;
}
