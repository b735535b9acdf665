export { Accepted, type ClientOptions, type Credentials, type Options } from "./calls.js";
export { Pressroom } from "./client.js";
export {
  ApiError,
  AttachmentFailed,
  AttachmentUnfinished,
  type FieldProblem,
  JobFailed,
  JobUnfinished,
  NotReached,
  PressroomError,
  SecretInvalid,
  SettingMissing,
  WebhookInvalid,
} from "./errors.js";
export type { ServerEvent } from "./events.js";
export type { Code } from "./generated/contract.js";
export type * from "./generated/document.js";
export type { Job, Waiting } from "./jobs.js";
export { type BegunLogin, OAuth, type OAuthOptions, type Tokens, tokenSource } from "./oauth.js";
export { Page, Pages, type Pagination } from "./pages.js";
export type { Retries } from "./retries.js";
export type { NamedFile, Upload } from "./uploads.js";
export { verifyWebhook } from "./webhooks.js";
