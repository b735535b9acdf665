import { openAsBlob } from "node:fs";
import { basename } from "node:path";
import type { NamedFile } from "./uploads.js";

/** A file of this machine, which is read as it is sent (Node, Deno and Bun). */
export async function fromPath(path: string): Promise<NamedFile> {
  return { name: basename(path), content: await openAsBlob(path) };
}
