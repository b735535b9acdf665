import { Accepted } from "./calls.js";
import { Operations } from "./generated/operations.js";
import { type Job, wait, type Waiting, watch } from "./jobs.js";

/**
 * A Pressroom API, as one caller sees it:
 * `new Pressroom("https://press.example.com", { credentials: "prk_…" })`.
 * Each method is an operation of the OpenAPI document; `upload_attachment` is `uploadAttachment`.
 */
export class Pressroom extends Operations {
  /** The job at each change, until it has ended; a stream that breaks off is taken up again. */
  watchJob(job: number | Accepted | Job, waiting: Waiting = {}): AsyncGenerator<Job, void, undefined> {
    const jobId = idOf(job);
    return watch(
      jobId,
      (lastId, signal) =>
        this.streamJobEvents(
          { job_id: jobId },
          { signal, ...(lastId ? { headers: { "Last-Event-ID": lastId } } : {}) },
        ),
      waiting,
    );
  }

  /**
   * The job once it has succeeded; `onProgress` is called at each change before. Rejects with JobFailed
   * when it fails or is cancelled, and with JobUnfinished after `timeout` seconds.
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
