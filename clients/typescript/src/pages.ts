/** What the API says about a page. */
export interface Pagination {
  readonly limit?: number;
  readonly next_offset?: number;
  readonly next_cursor?: string | null;
  readonly [name: string]: unknown;
}

type Turn<T> = (changes: Record<string, unknown>) => Promise<Page<T>>;

/** One page of a list. To iterate over it goes on through the pages after it. */
export class Page<T> implements AsyncIterable<T> {
  readonly #turn: Turn<T>;

  constructor(
    readonly items: readonly T[],
    readonly pagination: Pagination,
    turn: Turn<T>,
  ) {
    this.#turn = turn;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page.items;
  }

  /** This page and those after it. */
  async *pages(): AsyncGenerator<Page<T>, void, undefined> {
    let page: Page<T> | undefined = this;
    while (page) {
      yield page;
      page = await page.nextPage();
    }
  }

  /** The page after this one; undefined after the last. */
  async nextPage(): Promise<Page<T> | undefined> {
    const { limit = 0, next_cursor: cursor, next_offset: offset } = this.pagination;
    if (cursor === null) return undefined;
    if (cursor !== undefined) {
      const page = await this.#turn({ cursor, offset: undefined });
      // A page of a search may be empty and lead on. That of the feed leads to itself.
      return page.items.length === 0 && page.pagination.next_cursor === cursor ? undefined : page;
    }
    return this.items.length === 0 || this.items.length < limit ? undefined : this.#turn({ offset });
  }
}

/** A list: await it for its first page, or iterate over all of its items. */
export class Pages<T> implements PromiseLike<Page<T>>, AsyncIterable<T> {
  readonly #ask: () => Promise<Page<T>>;
  #first: Promise<Page<T>> | undefined;

  constructor(ask: () => Promise<Page<T>>) {
    this.#ask = ask;
  }

  then<A = Page<T>, B = never>(
    onFulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#first ??= this.#ask();
    return this.#first.then(onFulfilled, onRejected);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    yield* await this;
  }
}
