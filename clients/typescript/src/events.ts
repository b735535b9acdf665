/** One server-sent event. `id` is that of the last event that had one. */
export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

// The API sends a comment every 15 s, so that silence is a broken connection.
const SILENCE_SECONDS = 45;

/**
 * The events of a stream, as the HTML standard defines them. One that the stream's end cuts off is left
 * out. EventSource can't send credentials, so that this reads the answer of a fetch.
 */
export async function* serverEvents(
  body: ReadableStream<Uint8Array>,
): AsyncGenerator<ServerEvent, void, undefined> {
  let id = "";
  let event = "";
  let data: string[] = [];
  for await (const line of linesOf(body)) {
    if (line === "") {
      if (data.length > 0) yield { id, event: event || "message", data: data.join("\n") };
      event = "";
      data = [];
      continue;
    }
    const [name, value] = fieldOf(line);
    if (name === "data") data.push(value);
    else if (name === "event") event = value;
    else if (name === "id") id = value;
  }
}

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await unlessSilent(reader.read());
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?=.)/s);
      rest = lines.pop() ?? "";
      yield* lines;
    }
  } finally {
    // Whether it ended or its reader left: nothing more is wanted.
    reader.cancel().catch(() => undefined);
  }
}

async function unlessSilent<T>(read: Promise<T>): Promise<T> {
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

function fieldOf(line: string): [string, string] {
  const at = line.indexOf(":");
  if (at === -1) return [line, ""];
  return [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
}
