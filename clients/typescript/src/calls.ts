import { createApiError, NotReached, PressroomError, SecretInvalid } from "./errors.js";
import { parseEvents, type ServerEvent } from "./events.js";
import { VERSION } from "./generated/contract.js";
import { Page, Pages, type Pagination } from "./pages.js";
import { canRetry, pauseBefore, readRetryAfter, RETRIES, type Retries, sleep } from "./retries.js";
import { Body, type Upload } from "./uploads.js";

const JSON_TYPES = "application/json, application/problem+json";
const KEY_HEADER = "Idempotency-Key";
// Repeating a call with one of these methods doesn't change its effect.
const REPEATABLE_METHODS = new Set(["GET", "HEAD", "PUT", "DELETE"]);
// The timeout must exceed the 60 s for which a call may wait in the API.
const TIMEOUT_SECONDS = 70;
const IGNORED_HEADER = "Pressroom-Ignored";
// The maximum number of ignored names that a client remembers, because a program may compute the names.
const MAX_IGNORED_NAMES = 1000;
// With these error codes, Node's fetch failed before the API received anything.
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/** An API key, an access token, or a function that returns the current key or token. */
export type Credentials = string | (() => string | Promise<string>);

export interface ClientOptions {
  credentials?: Credentials;
  retries?: Partial<Retries>;
  /** The time limit for a response, in seconds. For files, the limit applies to the first byte. */
  timeout?: number;
  /** A replacement for the global fetch function. */
  fetch?: typeof globalThis.fetch;
  /**
   * Whether the API rejects unknown parameters and fields. Otherwise, the API ignores them, and the client
   * warns about each name once in the console.
   */
  strict?: boolean;
}

/** Options of a single call. */
export interface Options {
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** The job that continues the work after the end of the caller's wait. */
export class Accepted {
  constructor(readonly jobId: number) {}
}

/** The values of a path. The API accepts an id in place of a slug. */
export type InPath<T> = { [Name in keyof T]: string extends T[Name] ? string | number : T[Name] };

export interface Operation {
  method: string;
  path: string;
  query?: readonly string[];
  header?: Readonly<Record<string, string>>;
  body?: "json" | "form" | "bytes" | "multipart";
  takesKey?: boolean;
}

type Arguments = object;
type Named = Readonly<Record<string, unknown>> & { body?: unknown; file?: Upload };

/** The connection of one caller to an API. */
export class Calls {
  readonly #baseUrl: string;
  readonly #credentials: Credentials | undefined;
  readonly #retries: Retries;
  readonly #timeout: number;
  readonly #fetch: typeof globalThis.fetch;
  readonly #isStrict: boolean;
  readonly #ignoredNames = new Set<string>();

  constructor(baseUrl: string, options: ClientOptions = {}) {
    this.#baseUrl = tidyUrl(baseUrl);
    this.#credentials = options.credentials;
    this.#retries = { ...RETRIES, ...options.retries };
    this.#timeout = options.timeout ?? TIMEOUT_SECONDS;
    this.#isStrict = options.strict ?? false;
    // Browsers require that fetch is called as a method of the global object.
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  async data<T>(operation: Operation, args: Arguments, options: Options): Promise<T> {
    const response = await this.#send(operation, args as Named, options);
    const { data } = (await response.json()) as { data: T };
    const isJob = response.status === 202 && typeof data === "number";
    return isJob ? (new Accepted(data) as T) : data;
  }

  async plain<T>(operation: Operation, args: Arguments, options: Options): Promise<T> {
    return (await (await this.#send(operation, args as Named, options)).json()) as T;
  }

  page<T>(operation: Operation, args: Arguments, options: Options): Pages<T> {
    const fetchPage = async (pageArgs: Named): Promise<Page<T>> => {
      const response = await this.#send(operation, pageArgs, options);
      const { data } = (await response.json()) as { data: { items: T[]; pagination: Pagination } };
      return new Page(data.items, data.pagination, (changes) =>
        fetchPage(nextArguments(operation, pageArgs, changes)),
      );
    };
    return new Pages(() => fetchPage(args as Named));
  }

  file(operation: Operation, args: Arguments, options: Options): Promise<Response> {
    return this.#send(operation, args as Named, options, "*/*");
  }

  async *events(
    operation: Operation,
    args: Arguments,
    options: Options,
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const { body } = await this.#send(operation, args as Named, options, "text/event-stream, */*");
    if (!body) return;
    try {
      yield* parseEvents(body);
    } catch (error) {
      throw toCallError(error, options.signal, this.#baseUrl);
    }
  }

  /** Send a call, and return the successful response. Only streamed bodies are incomplete. */
  async #send(operation: Operation, args: Named, options: Options, accept = JSON_TYPES): Promise<Response> {
    const body = await Body.of(operation.body, args);
    const headers = { Accept: accept, ...headersOf(operation, args) };
    const call = {
      hasKey: KEY_HEADER in headers,
      isRepeatable: KEY_HEADER in headers || REPEATABLE_METHODS.has(operation.method),
    };
    const url = this.#baseUrl + pathOf(operation, args) + queryOf(operation, args, body);
    for (let attempt = 0; ; attempt++) {
      const init = body.init();
      init.method = operation.method;
      const sentHeaders = { ...(await this.#identity()), ...init.headers, ...headers, ...options.headers };
      init.headers = buildHeaders(sentHeaders);
      if (this.#isStrict) init.headers.append("Prefer", "handling=strict");
      let pause: number | undefined;
      try {
        const response = await this.#attempt(url, init, options.signal, accept !== JSON_TYPES);
        this.#warnAboutIgnoredNames(`${operation.method} ${operation.path}`, response.headers);
        if (response.ok) return response;
        const requiredPause = readRetryAfter(response.headers);
        if (body.canBeSentAgain && (await canRetry(response, call))) {
          pause = pauseBefore(this.#retries, attempt, requiredPause);
        }
        if (pause === undefined) throw await createApiError(response, requiredPause, this.#baseUrl + pathOf(operation, args));
      } catch (error) {
        if (!(error instanceof NotReached)) throw error;
        const mayRepeat = wasNotSent(error) || (call.isRepeatable && body.canBeSentAgain);
        pause = mayRepeat ? pauseBefore(this.#retries, attempt) : undefined;
        if (pause === undefined) throw error;
      }
      await sleep(pause, options.signal);
    }
  }

  /** Make one attempt within the time limit. Rejects with NotReached for incomplete responses. */
  async #attempt(
    url: string,
    init: RequestInit,
    signal: AbortSignal | undefined,
    isStreamed: boolean,
  ): Promise<Response> {
    signal?.throwIfAborted();
    const bounded = new AbortController();
    const onAbort = () => bounded.abort(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(() => bounded.abort(new Error("the time ran out")), this.#timeout * 1000);
    let isOpen = false;
    try {
      const response = await this.#fetch(url, { ...init, redirect: "manual", signal: bounded.signal });
      isOpen = isStreamed && response.ok;
      if (isOpen) return response;
      const { status, headers } = response;
      const content = await response.arrayBuffer();
      return new Response(content.byteLength > 0 ? content : null, { status: status || 502, headers });
    } catch (error) {
      throw toCallError(error, signal, this.#baseUrl);
    } finally {
      clearTimeout(timer);
      // The caller may abort a stream until its end.
      if (!isOpen) signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Warn about the names that a response lists, once for each name of an operation. */
  #warnAboutIgnoredNames(operation: string, headers: Headers): void {
    const names = headers.get(IGNORED_HEADER)?.split(", ") ?? [];
    const newNames = names.filter((name) => !this.#ignoredNames.has(`${operation} ${name}`));
    if (newNames.length === 0 || this.#ignoredNames.size >= MAX_IGNORED_NAMES) return;
    for (const name of newNames) this.#ignoredNames.add(`${operation} ${name}`);
    console.warn(
      `The Pressroom API ignored ${newNames.join(", ")} in ${operation}. ` +
        "Set the client's option strict, so that unknown names raise an error.",
    );
  }

  async #identity(): Promise<Record<string, string>> {
    const credentials = this.#credentials;
    const token = typeof credentials === "function" ? await credentials() : credentials;
    return token ? { Authorization: `Bearer ${tidyToken(token)}` } : {};
  }
}

/**
 * Return the URL of the API without the blanks around it, and without final slashes. Throws
 * PressroomError for a malformed URL, and for a URL with a password. The message doesn't quote the URL,
 * because it may be a misplaced key, and the text of fetch would quote it.
 */
export function tidyUrl(url: string): string {
  const tidied = url.trim().replace(/\/+$/, "");
  // In a browser, the URL may be relative to the page.
  const page = (globalThis as { location?: { href: string } }).location?.href;
  if (!isValidUrl(tidied, page)) {
    throw new PressroomError(
      "The URL of the API must begin with https:// or http://, and must contain a valid host and port, but no user name, password or blank.",
    );
  }
  return tidied;
}

function isValidUrl(url: string, page: string | undefined): boolean {
  try {
    const { protocol, username, password } = new URL(url, page);
    return /^https?:$/.test(protocol) && !username && !password && !/\s/.test(url);
  } catch {
    return false;
  }
}

/** Return an API key or token without the blanks and line ends around it. */
function tidyToken(token: string): string {
  const tidied = token.trim();
  if (/^[!-~]+$/.test(tidied)) return tidied;
  throw new SecretInvalid(
    "The API key or token contains a character that no key has, such as a blank or a line end, or it is empty.",
  );
}

/** Throw PressroomError for invalid headers. The text of fetch would quote the header, with a key in it. */
function buildHeaders(headers: HeadersInit): Headers {
  try {
    return new Headers(headers);
  } catch {
    throw new PressroomError("A header contains a character that HTTP forbids.");
  }
}

/** Return the caller's reason for an abort, or NotReached for a lost connection. */
function toCallError(error: unknown, signal: AbortSignal | undefined, baseUrl: string): unknown {
  if (signal?.aborted) return signal.reason;
  return new NotReached(`No answer from ${baseUrl}: ${error instanceof Error ? error.message : error}`, { cause: error });
}

function wasNotSent(error: NotReached): boolean {
  const cause = (error.cause as { cause?: { code?: unknown } } | undefined)?.cause;
  return typeof cause?.code === "string" && NOT_SENT.has(cause.code);
}

function headersOf(operation: Operation, args: Named): Record<string, string> {
  const headers: Record<string, string> = { "Pressroom-Version": VERSION };
  for (const [argument, name] of Object.entries(operation.header ?? {})) {
    if (args[argument] !== undefined) headers[name] = String(args[argument]);
  }
  // All attempts have the same key, so that the API executes the call once.
  if (operation.takesKey) headers[KEY_HEADER] ??= crypto.randomUUID();
  return headers;
}

/** Insert values into a path. Throws a TypeError for an empty value and for dots. */
function pathOf(operation: Operation, args: Named): string {
  return operation.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = String(args[name] ?? "");
    if (["", ".", ".."].includes(value)) throw new TypeError(`${name} must not be "${value}"`);
    return encodeURIComponent(value);
  });
}

function queryOf(operation: Operation, args: Named, body: Body): string {
  const query = new URLSearchParams();
  for (const name of operation.query ?? []) {
    const value = args[name] ?? (name === "filename" ? body.filename : undefined);
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each === undefined || each === null) continue;
      query.append(name, typeof each === "object" ? JSON.stringify(each) : String(each));
    }
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** Return the arguments for the next page. A search has its cursor in the body, next to the filter. */
function nextArguments(operation: Operation, args: Named, changes: Record<string, unknown>): Named {
  const names = operation.query ?? [];
  if (names.includes("cursor") || names.includes("offset")) return { ...args, ...changes };
  return { ...args, body: { ...(args.body as object), ...changes } };
}
