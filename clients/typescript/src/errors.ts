import type { Code } from "./generated/contract.js";
import type { AttachmentRecord, JobRecord } from "./generated/document.js";

/** An invalid field of a request. */
export interface FieldProblem {
  field: string;
  code: string;
  message: string;
}

/** The base class of all errors of this package. */
export class PressroomError extends Error {
  override readonly name: string = "PressroomError";
}

/** An error response of the API. The stable `code` is for programs, and `message` is for people. */
export class ApiError extends PressroomError {
  override readonly name = "ApiError";
  readonly code: Code | (string & {});
  readonly errors: readonly FieldProblem[];
  readonly requestId: string | undefined;

  constructor(
    readonly status: number,
    /** The complete body of the response. */
    readonly problem: Readonly<Record<string, unknown>>,
    /** The number of seconds to wait before repeating the call. */
    readonly retryAfter?: number,
    url = "The server",
  ) {
    // The OAuth routes use the error format of RFC 6749.
    const code = text(problem.code) ?? text(problem.error) ?? `http.${status}`;
    const detail = text(problem.detail) ?? text(problem.error_description);
    // Another server, such as a proxy, may have sent the response.
    const isForeign = code.startsWith("http.") || detail === undefined;
    const sentence = isForeign ? `${url} responded with status ${status}${detail ? `: ${detail}` : "."}` : detail;
    super(`${sentence} (${code}, status ${status})`);
    this.code = code;
    this.errors = Array.isArray(problem.errors) ? problem.errors : [];
    this.requestId = text(problem.request_id);
  }
}

/** The API sent no response. The API may nevertheless have executed the call. */
export class NotReached extends PressroomError {
  override readonly name = "NotReached";
}

/** A job failed or was cancelled. */
export class JobFailed extends PressroomError {
  override readonly name = "JobFailed";
  readonly code: string;

  constructor(readonly job: JobRecord) {
    super(text(job.error?.message) ?? `Job ${job.id} was ${job.status}.`);
    this.code = text(job.error?.code) ?? `job.${job.status}`;
  }
}

/** The wait for a job timed out. The job continues. */
export class JobUnfinished extends PressroomError {
  override readonly name = "JobUnfinished";
}

/** An uploaded image can't be converted. */
export class AttachmentFailed extends PressroomError {
  override readonly name = "AttachmentFailed";
  readonly code: string;

  constructor(readonly attachment: AttachmentRecord) {
    super(text(attachment.error?.message) ?? "The image could not be converted.");
    this.code = text(attachment.error?.code) ?? "attachment.failed";
  }
}

/** The wait for an uploaded image timed out. The conversion continues. */
export class AttachmentUnfinished extends PressroomError {
  override readonly name = "AttachmentUnfinished";
}

/** A webhook with a missing, invalid or outdated signature. Ignore the webhook's message. */
export class WebhookInvalid extends PressroomError {
  override readonly name = "WebhookInvalid";
}

/** The client has no URL or API key, and an environment variable is missing. */
export class SettingMissing extends PressroomError {
  override readonly name = "SettingMissing";
}

/** A malformed API key, access token or webhook secret. The message doesn't quote the secret. */
export class SecretInvalid extends PressroomError {
  override readonly name = "SecretInvalid";
}

/** Return the error for an unsuccessful response. */
export async function createApiError(
  response: Response,
  retryAfter: number | undefined,
  url?: string,
): Promise<ApiError> {
  let problem: unknown;
  try {
    problem = await response.json();
  } catch {
    problem = undefined;
  }
  const isProblem = typeof problem === "object" && problem !== null && !Array.isArray(problem);
  return new ApiError(response.status, isProblem ? (problem as Record<string, unknown>) : {}, retryAfter, url);
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}
