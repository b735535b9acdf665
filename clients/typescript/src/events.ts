/** A server-sent event. An event without an id has the `id` of the previous event. */
export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

// The API sends a comment every 15 s. A longer silence means that the connection is lost.
const SILENCE_SECONDS = 45;

/**
 * Yield the events of a stream in the format of the HTML standard. An incomplete event at the end of the
 * stream is ignored. The client doesn't use EventSource, because EventSource can't send credentials.
 */
export async function* parseEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerEvent, void, undefined> {
  let id = "";
  let event = "";
  let data: string[] = [];
  for await (const line of readLines(body)) {
    if (line === "") {
      if (data.length > 0) yield { id, event: event || "message", data: data.join("\n") };
      event = "";
      data = [];
      continue;
    }
    const [name, value] = parseField(line);
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
}

async function* readLines(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await rejectAfterSilence(reader.read());
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?=.)/s);
      rest = lines.pop() ?? "";
      yield* lines;
    }
  } finally {
    // Close the stream after its end, and also if the caller stops reading.
    reader.cancel().catch(() => undefined);
  }
}

async function rejectAfterSilence<T>(read: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silence = new Promise<never>((_, reject) => {
    const late = () => reject(new Error(`nothing came for ${SILENCE_SECONDS} s`));
    timer = setTimeout(late, SILENCE_SECONDS * 1000);
  });
  try {
    return await Promise.race([read, silence]);
  } finally {
    clearTimeout(timer);
  }
}

function parseField(line: string): [string, string] {
  const at = line.indexOf(":");
  if (at === -1) return [line, ""];
  return [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
}
