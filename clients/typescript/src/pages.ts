/** The pagination object of the API's response. */
export interface Pagination {
  readonly limit?: number;
  readonly next_offset?: number;
  readonly next_cursor?: string | null;
  readonly [name: string]: unknown;
}

type FetchPage<T> = (changes: Record<string, unknown>) => Promise<Page<T>>;

/** A page of a list. Iterating over a page returns the items of this page and all later pages. */
export class Page<T> implements AsyncIterable<T> {
  readonly #fetchPage: FetchPage<T>;

  constructor(
    readonly items: readonly T[],
    readonly pagination: Pagination,
    fetchPage: FetchPage<T>,
  ) {
    this.#fetchPage = fetchPage;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for await (const page of this.pages()) yield* page.items;
  }

  /** Yield this page and all later pages. */
  async *pages(): AsyncGenerator<Page<T>, void, undefined> {
    let page: Page<T> | undefined = this;
    while (page) {
      yield page;
      page = await page.nextPage();
    }
  }

  /** Return the next page, or undefined after the last page. */
  async nextPage(): Promise<Page<T> | undefined> {
    const { limit = 0, next_cursor: cursor, next_offset: offset } = this.pagination;
    if (cursor === null) return undefined;
    if (cursor !== undefined) {
      const page = await this.#fetchPage({ cursor, offset: undefined });
      // An empty page of a search may have a next page. The last page of the feed is empty and repeats
      // its cursor.
      return page.items.length === 0 && page.pagination.next_cursor === cursor ? undefined : page;
    }
    const isLast = this.items.length === 0 || this.items.length < limit;
    return isLast ? undefined : this.#fetchPage({ offset });
  }
}

/** A list. Await a list for the first page, or iterate over a list for all of its items. */
export class Pages<T> implements PromiseLike<Page<T>>, AsyncIterable<T> {
  readonly #fetchFirst: () => Promise<Page<T>>;
  #first: Promise<Page<T>> | undefined;

  constructor(fetchFirst: () => Promise<Page<T>>) {
    this.#fetchFirst = fetchFirst;
  }

  then<A = Page<T>, B = never>(
    onFulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#first ??= this.#fetchFirst();
    return this.#first.then(onFulfilled, onRejected);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    yield* await this;
  }
}
