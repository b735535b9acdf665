import { apiErrorOf, NotReached } from "./errors.js";
import { type ServerEvent, serverEvents } from "./events.js";
import { VERSION } from "./generated/contract.js";
import { Page, Pages, type Pagination } from "./pages.js";
import { isWorthAnotherTry, pauseBefore, RETRIES, retryAfter, sleep, type Retries } from "./retries.js";
import { Body, type Upload } from "./uploads.js";

const JSON_TYPES = "application/json, application/problem+json";
const KEY_HEADER = "Idempotency-Key";
// Calls that have the same effect, however often they arrive.
const REPEATABLE_METHODS = new Set(["GET", "HEAD", "PUT", "DELETE"]);
// The API lets a call wait for up to 60 s.
const TIMEOUT_SECONDS = 70;
// Reasons for which Node's fetch sent nothing.
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

/** An API key or access token, or a function that gives the one to use now. */
export type Credentials = string | (() => string | Promise<string>);

export interface ClientOptions {
  credentials?: Credentials;
  retries?: Partial<Retries>;
  /** Seconds until an answer must have come; for files, until it must have begun. */
  timeout?: number;
  /** Instead of the host's own fetch. */
  fetch?: typeof globalThis.fetch;
}

/** What one call may be given beside its arguments. */
export interface Options {
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

/** The wait ran out before the work ended. It goes on as this job. */
export class Accepted {
  constructor(readonly jobId: number) {}
}

/** The values of a path: where the API takes a slug, it takes an id too. */
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

/** The connection to one API as one caller. */
export class Calls {
  readonly #baseUrl: string;
  readonly #credentials: Credentials | undefined;
  readonly #retries: Retries;
  readonly #timeout: number;
  readonly #fetch: typeof globalThis.fetch;

  constructor(baseUrl: string, options: ClientOptions = {}) {
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#credentials = options.credentials;
    this.#retries = { ...RETRIES, ...options.retries };
    this.#timeout = options.timeout ?? TIMEOUT_SECONDS;
    // Browsers want it called on the global object.
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  protected async data<T>(operation: Operation, args: Arguments, options: Options): Promise<T> {
    const response = await this.#send(operation, args as Named, options);
    const { data } = (await response.json()) as { data: T };
    const isJob = response.status === 202 && typeof data === "number";
    return isJob ? (new Accepted(data) as T) : data;
  }

  protected async plain<T>(operation: Operation, args: Arguments, options: Options): Promise<T> {
    return (await (await this.#send(operation, args as Named, options)).json()) as T;
  }

  protected page<T>(operation: Operation, args: Arguments, options: Options): Pages<T> {
    const ask = async (given: Named): Promise<Page<T>> => {
      const response = await this.#send(operation, given, options);
      const { data } = (await response.json()) as { data: { items: T[]; pagination: Pagination } };
      return new Page(data.items, data.pagination, (changes) => ask(turned(operation, given, changes)));
    };
    return new Pages(() => ask(args as Named));
  }

  protected file(operation: Operation, args: Arguments, options: Options): Promise<Response> {
    return this.#send(operation, args as Named, options, "*/*");
  }

  protected async *events(
    operation: Operation,
    args: Arguments,
    options: Options,
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const { body } = await this.#send(operation, args as Named, options, "text/event-stream, */*");
    if (!body) return;
    try {
      yield* serverEvents(body);
    } catch (error) {
      throw lost(error, options.signal);
    }
  }

  /** An answer that is a success, read to its end unless it is streamed. */
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
      init.headers = { ...(await this.#identity()), ...init.headers, ...headers, ...options.headers };
      let pause: number | undefined;
      try {
        const response = await this.#once(url, init, options.signal, accept !== JSON_TYPES);
        if (response.ok) return response;
        const asked = retryAfter(response.headers);
        if (body.canBeSentAgain && (await isWorthAnotherTry(response, call))) {
          pause = pauseBefore(this.#retries, attempt, asked);
        }
        if (pause === undefined) throw await apiErrorOf(response, asked);
      } catch (error) {
        if (!(error instanceof NotReached)) throw error;
        const mayRepeat = wasNotSent(error) || (call.isRepeatable && body.canBeSentAgain);
        pause = mayRepeat ? pauseBefore(this.#retries, attempt) : undefined;
        if (pause === undefined) throw error;
      }
      await sleep(pause, options.signal);
    }
  }

  /** One try, bounded in time. Rejects with NotReached where no whole answer came. */
  async #once(
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
      throw lost(error, signal);
    } finally {
      clearTimeout(timer);
      // A stream may be aborted for as long as it lasts.
      if (!isOpen) signal?.removeEventListener("abort", onAbort);
    }
  }

  async #identity(): Promise<Record<string, string>> {
    const given = this.#credentials;
    const token = typeof given === "function" ? await given() : given;
    return token ? { Authorization: `Bearer ${token}` } : {};
  }
}

/** The caller's own abort is theirs; all else is a lost connection. */
function lost(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted) return signal.reason;
  return new NotReached(`No answer: ${error instanceof Error ? error.message : error}`, { cause: error });
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
  // All tries have one key, so that they have one effect.
  if (operation.takesKey) headers[KEY_HEADER] ??= crypto.randomUUID();
  return headers;
}

/** The path with its values. Throws a TypeError for one that would lead to another path. */
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

/** The arguments for the next page: a search has its cursor where it has its filter. */
function turned(operation: Operation, args: Named, changes: Record<string, unknown>): Named {
  const names = operation.query ?? [];
  if (names.includes("cursor") || names.includes("offset")) return { ...args, ...changes };
  return { ...args, body: { ...(args.body as object), ...changes } };
}
