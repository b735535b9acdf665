import { ApiError } from "./errors.js";
import { Calls, tidyUrl } from "./calls.js";
import { Operations } from "./generated/operations.js";

// A token is refreshed this long before its end, so that it doesn't expire during a call.
const EARLY_SECONDS = 60;

export interface OAuthOptions {
  clientId: string;
  redirectUri: string;
  /** The secret of a program that can keep a secret. A program in a browser has no secret. */
  clientSecret?: string;
  /** The issuer in the API's responses, if it differs from `baseUrl`. */
  issuer?: string;
  fetch?: typeof globalThis.fetch;
}

/**
 * A login in progress. Redirect the person to `url`. Store the login in the person's session until the
 * person returns.
 */
export interface BegunLogin {
  url: string;
  state: string;
  verifier: string;
}

/** The tokens of one person. `accessToken` expires at `expiresAt`, in Unix seconds. */
export interface Tokens {
  accessToken: string;
  refreshToken: string | undefined;
  expiresAt: number;
  scope: string;
}

/** The OAuth client of a registered program. Implements OAuth 2.0 with PKCE. */
export class OAuth {
  readonly #baseUrl: string;
  readonly #options: OAuthOptions;
  readonly #api: Operations;

  constructor(baseUrl: string, options: OAuthOptions) {
    this.#baseUrl = tidyUrl(baseUrl);
    this.#options = options;
    this.#api = new Operations(new Calls(baseUrl, options.fetch ? { fetch: options.fetch } : {}));
  }

  /** Start a login in which a person grants the scopes. */
  async begin(scopes: readonly string[]): Promise<BegunLogin> {
    const verifier = randomText(48);
    const state = randomText(24);
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const parameters = new URLSearchParams({
      response_type: "code",
      client_id: this.#options.clientId,
      redirect_uri: this.#options.redirectUri,
      scope: scopes.join(" "),
      state,
      code_challenge: base64url(new Uint8Array(digest)),
      code_challenge_method: "S256",
    });
    return { url: `${this.#baseUrl}/oauth/authorize?${parameters}`, state, verifier };
  }

  /**
   * Return the tokens after the person has returned from the login page. Rejects with ApiError if the
   * person denied access (`access_denied`). Also rejects if the URL belongs to another login
   * (`state.mismatch`) or to another server (`iss.mismatch`).
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
    return this.#requestTokens({
      grant_type: "authorization_code",
      code: returned.code ?? "",
      redirect_uri: this.#options.redirectUri,
      code_verifier: login.verifier,
    });
  }

  /** Exchange the refresh token for new tokens. The old refresh token becomes invalid. */
  refresh(tokens: Tokens): Promise<Tokens> {
    return this.#requestTokens({ grant_type: "refresh_token", refresh_token: tokens.refreshToken ?? "" });
  }

  /** Revoke the access of the tokens. */
  async revoke(tokens: Tokens): Promise<void> {
    const token = tokens.refreshToken ?? tokens.accessToken;
    await this.#api.oauth.revokeToken({ body: { token, ...this.#identity() } });
  }

  async #requestTokens(grant: { grant_type: string } & Record<string, string>): Promise<Tokens> {
    const answer = await this.#api.oauth.issueTokens({ body: { ...grant, ...this.#identity() } });
    return {
      accessToken: answer.access_token,
      refreshToken: answer.refresh_token ?? undefined,
      expiresAt: Date.now() / 1000 + answer.expires_in,
      scope: answer.scope ?? "",
    };
  }

  #identity(): { client_id: string; client_secret?: string } {
    const { clientId, clientSecret } = this.#options;
    return { client_id: clientId, ...(clientSecret ? { client_secret: clientSecret.trim() } : {}) };
  }
}

/**
 * Return a function that returns a person's access token, and refreshes the token before it expires.
 * `onChange` stores the new tokens. The function calls `onChange` before the new tokens are used.
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
      // The API revokes the access if a refresh token is used twice.
      refreshing ??= renew().finally(() => {
        refreshing = undefined;
      });
      await refreshing;
    }
    return tokens.accessToken;
  };
}

function randomText(bytes: number): string {
  return base64url(crypto.getRandomValues(new Uint8Array(bytes)));
}

function base64url(bytes: Uint8Array): string {
  const base64 = btoa(String.fromCharCode(...bytes));
  return base64.replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}
