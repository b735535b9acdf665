import type { Options } from "./calls.js";
import { AttachmentFailed, AttachmentUnfinished } from "./errors.js";
import type { AttachmentRecord } from "./generated/document.js";
import { sleep } from "./retries.js";

const READY = 2;
const FAILED = 3;
const FIRST_PAUSE_SECONDS = 0.5;
const MAX_PAUSE_SECONDS = 5;

interface Attachments {
  read(args: { hash_id: string }, options?: Options): Promise<AttachmentRecord>;
}

/** Read an uploaded attachment until it is ready. Without `seconds`, return it as it is. */
export async function waitForAttachment(
  attachments: Attachments,
  upload: Promise<AttachmentRecord>,
  seconds: number | undefined,
  options: Options,
): Promise<AttachmentRecord> {
  let attachment = await upload;
  if (seconds === undefined) return attachment;
  const deadline = Date.now() + seconds * 1000;
  for (let pause = FIRST_PAUSE_SECONDS; attachment.status !== READY; pause = Math.min(pause * 2, MAX_PAUSE_SECONDS)) {
    if (attachment.status === FAILED) throw new AttachmentFailed(attachment);
    const remaining = (deadline - Date.now()) / 1000;
    if (remaining <= 0) {
      throw new AttachmentUnfinished(`Attachment ${attachment.hash_id} is not ready yet; its conversion goes on.`);
    }
    await sleep(Math.min(pause, remaining), options.signal);
    attachment = await attachments.read({ hash_id: attachment.hash_id }, options);
  }
  return attachment;
}
