type Stream = ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** A file with a name that the caller chooses. */
export interface NamedFile {
  name: string;
  content: Blob | ArrayBuffer | Uint8Array | Stream;
}

/** A file to upload, as a File or Blob of a browser, bytes, a stream of bytes, or a named file. */
export type Upload = NamedFile["content"] | NamedFile;

type BodyKind = "json" | "form" | "bytes" | "multipart";

/** The body of a call, which creates the arguments for each attempt of the call. */
export class Body {
  readonly filename: string | undefined;
  /** Whether the body can be sent again. A stream can be sent once. */
  readonly canBeSentAgain: boolean;
  readonly #kind: BodyKind | undefined;
  readonly #content: unknown;

  private constructor(kind: BodyKind | undefined, content: unknown, filename: string | undefined) {
    this.#kind = kind;
    this.#content = content;
    this.filename = filename;
    this.canBeSentAgain = kind !== "bytes" || !isStream(content);
  }

  static async of(kind: BodyKind | undefined, args: { body?: unknown; file?: Upload }): Promise<Body> {
    if (kind !== "bytes" && kind !== "multipart") return new Body(kind, args.body, undefined);
    const { content, name } = unpackFile(args.file);
    if (kind === "bytes") return new Body(kind, content, name);
    // A multipart body needs the length of the file, so the whole file is read into memory.
    const blob = isStream(content)
      ? await new Response(streamOf(content)).blob()
      : new Blob([content as BlobPart]);
    return new Body(kind, blob, name);
  }

  /** Return the arguments of fetch for one attempt. */
  init(): RequestInit & { duplex?: "half" } {
    const content = this.#content;
    if (content === undefined) return {};
    switch (this.#kind) {
      case "json":
        return { body: JSON.stringify(content), headers: { "Content-Type": "application/json" } };
      case "form":
        return { body: new URLSearchParams(content as Record<string, string>) };
      case "multipart": {
        const form = new FormData();
        form.append("file", content as Blob, this.filename ?? "upload");
        return { body: form };
      }
      case "bytes": {
        const headers = { "Content-Type": "application/octet-stream" };
        if (isStream(content)) return { body: streamOf(content), headers, duplex: "half" };
        return { body: content as Blob | ArrayBuffer, headers };
      }
      default:
        return {};
    }
  }
}

function unpackFile(upload: Upload | undefined): { content: NamedFile["content"]; name?: string } {
  if (upload === undefined) throw new TypeError("A file is missing.");
  if ("content" in upload) return upload;
  // A File of a browser has a name.
  const name = "name" in upload ? upload.name : undefined;
  return typeof name === "string" ? { content: upload, name } : { content: upload };
}

function isStream(content: unknown): content is Stream {
  if (typeof content !== "object" || content === null) return false;
  return "getReader" in content || Symbol.asyncIterator in content;
}

function streamOf(stream: Stream): ReadableStream<Uint8Array> {
  if ("getReader" in stream) return stream;
  const chunks = stream[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await chunks.return?.();
    },
  });
}
