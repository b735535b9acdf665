import type { operations } from "./generated/document.js";
import type { Code } from "./generated/contract.js";

type Job = operations["read_job"]["responses"][200]["content"]["application/json"]["data"];

/** An entry for one place of the input that breaks a rule. */
export interface FieldProblem {
  field: string;
  code: string;
  message: string;
}

/** The base of all errors of this package. */
export class PressroomError extends Error {
  override readonly name: string = "PressroomError";
}

/** An answer of the API that is no success. Compare `code`, which is stable; `message` is for people. */
export class ApiError extends PressroomError {
  override readonly name = "ApiError";
  readonly code: Code | (string & {});
  readonly errors: readonly FieldProblem[];
  readonly requestId: string | undefined;

  constructor(
    readonly status: number,
    /** The whole answer. */
    readonly problem: Readonly<Record<string, unknown>>,
    /** The seconds after which the API takes such a call again. */
    readonly retryAfter?: number,
  ) {
    // OAuth's own routes name their errors as RFC 6749 says.
    const code = text(problem.code) ?? text(problem.error) ?? `http.${status}`;
    const sentence = text(problem.detail) ?? text(problem.error_description) ?? `Status ${status}.`;
    super(`${sentence} (${code}, status ${status})`);
    this.code = code;
    this.errors = Array.isArray(problem.errors) ? problem.errors : [];
    this.requestId = text(problem.request_id);
  }
}

/** The API did not answer. Whether it did what it was asked to is not known. */
export class NotReached extends PressroomError {
  override readonly name = "NotReached";
}

/** A job ended, and did not succeed. */
export class JobFailed extends PressroomError {
  override readonly name = "JobFailed";
  readonly code: string;

  constructor(readonly job: Job) {
    super(text(job.error?.message) ?? `Job ${job.id} was ${job.status}.`);
    this.code = text(job.error?.code) ?? `job.${job.status}`;
  }
}

/** A job that was waited for has not ended yet; it goes on. */
export class JobUnfinished extends PressroomError {
  override readonly name = "JobUnfinished";
}

/** A webhook's signature is missing, wrong or too old: do nothing of what it says. */
export class WebhookInvalid extends PressroomError {
  override readonly name = "WebhookInvalid";
}

/** The error for an answer that is no success. */
export async function apiErrorOf(response: Response, retryAfter: number | undefined): Promise<ApiError> {
  let problem: unknown;
  try {
    problem = await response.json();
  } catch {
    problem = undefined;
  }
  const known = typeof problem === "object" && problem !== null && !Array.isArray(problem);
  return new ApiError(response.status, known ? (problem as Record<string, unknown>) : {}, retryAfter);
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
