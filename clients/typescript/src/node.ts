import { openAsBlob } from "node:fs";
import { access } from "node:fs/promises";
import { basename } from "node:path";
import type { NamedFile } from "./uploads.js";

/** Return a local file for an upload in Node, Deno or Bun. The file is read during the upload. */
export async function fromPath(path: string): Promise<NamedFile> {
  // The error of openAsBlob doesn't name the file.
  await access(path);
  return { name: basename(path), content: await openAsBlob(path) };
}
