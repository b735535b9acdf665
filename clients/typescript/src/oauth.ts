import { ApiError } from "./errors.js";
import { Operations } from "./generated/operations.js";

// A token that is about to expire might do so on its way.
const EARLY_SECONDS = 60;

export interface OAuthOptions {
  clientId: string;
  redirectUri: string;
  /** Only of programs that can keep it, never of one that runs in a browser. */
  clientSecret?: string;
  /** What the API calls itself, where that is not `baseUrl`. */
  issuer?: string;
  fetch?: typeof globalThis.fetch;
}

/** Send the person to `url`; keep the rest in their session until they come back. */
export interface BegunLogin {
  url: string;
  state: string;
  verifier: string;
}

/** Of one person. `expiresAt` is when `accessToken` ends, in Unix seconds. */
export interface Tokens {
  accessToken: string;
  refreshToken: string | undefined;
  expiresAt: number;
  scope: string;
}

/** A client program that an operator registered: OAuth 2.0 with PKCE. */
export class OAuth {
  readonly #baseUrl: string;
  readonly #options: OAuthOptions;
  readonly #api: Operations;

  constructor(baseUrl: string, options: OAuthOptions) {
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#options = options;
    this.#api = new Operations(baseUrl, options.fetch ? { fetch: options.fetch } : {});
  }

  /** A login that asks a person for these scopes. */
  async begin(scopes: readonly string[]): Promise<BegunLogin> {
    const [verifier, state] = [random(48), random(24)];
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const asked = new URLSearchParams({
      response_type: "code",
      client_id: this.#options.clientId,
      redirect_uri: this.#options.redirectUri,
      scope: scopes.join(" "),
      state,
      code_challenge: base64url(new Uint8Array(digest)),
      code_challenge_method: "S256",
    });
    return { url: `${this.#baseUrl}/oauth/authorize?${asked}`, state, verifier };
  }

  /**
   * The tokens, by the URL to which the person came back. Rejects with ApiError when the person said no
   * (`access_denied`), or when the URL belongs to another login (`state.mismatch`) or another server
   * (`iss.mismatch`).
   */
  async finish(login: BegunLogin, returnedUrl: string): Promise<Tokens> {
    const returned = Object.fromEntries(new URL(returnedUrl).searchParams);
    if (returned.state !== login.state) {
      throw new ApiError(0, { code: "state.mismatch", detail: "The URL is of another login." });
    }
    if (returned.iss?.replace(/\/+$/, "") !== (this.#options.issuer ?? this.#baseUrl)) {
      throw new ApiError(0, { code: "iss.mismatch", detail: "Another server answered." });
    }
    if (returned.error) throw new ApiError(0, returned);
    return this.#ask({
      grant_type: "authorization_code",
      code: returned.code ?? "",
      redirect_uri: this.#options.redirectUri,
      code_verifier: login.verifier,
    });
  }

  /** New tokens for old. The old refresh token works no more: keep the new ones. */
  refresh(tokens: Tokens): Promise<Tokens> {
    return this.#ask({ grant_type: "refresh_token", refresh_token: tokens.refreshToken ?? "" });
  }

  /** End the access that these tokens give. */
  async revoke(tokens: Tokens): Promise<void> {
    const token = tokens.refreshToken ?? tokens.accessToken;
    await this.#api.revokeToken({ body: { token, ...this.#identity() } });
  }

  async #ask(grant: { grant_type: string } & Record<string, string>): Promise<Tokens> {
    const answer = await this.#api.issueTokens({ body: { ...grant, ...this.#identity() } });
    return {
      accessToken: answer.access_token,
      refreshToken: answer.refresh_token ?? undefined,
      expiresAt: Date.now() / 1000 + answer.expires_in,
      scope: answer.scope ?? "",
    };
  }

  #identity(): { client_id: string; client_secret?: string } {
    const { clientId, clientSecret } = this.#options;
    return { client_id: clientId, ...(clientSecret ? { client_secret: clientSecret } : {}) };
  }
}

/**
 * A person's access token, renewed before it expires. `onChange` is given the new tokens, to keep them
 * before they are used.
 */
export function tokenSource(
  oauth: OAuth,
  tokens: Tokens,
  onChange: (tokens: Tokens) => void | Promise<void>,
): () => Promise<string> {
  let refreshing: Promise<Tokens> | undefined;
  const renew = async (): Promise<Tokens> => {
    const renewed = await oauth.refresh(tokens);
    tokens = renewed;
    await onChange(renewed);
    return renewed;
  };
  return async () => {
    if (Date.now() / 1000 > tokens.expiresAt - EARLY_SECONDS || refreshing) {
      // Two refreshes with one token would end the access.
      refreshing ??= renew().finally(() => {
        refreshing = undefined;
      });
      await refreshing;
    }
    return tokens.accessToken;
  };
}

function random(bytes: number): string {
  return base64url(crypto.getRandomValues(new Uint8Array(bytes)));
}

function base64url(bytes: Uint8Array): string {
  const base64 = btoa(String.fromCharCode(...bytes));
  return base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
