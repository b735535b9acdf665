import type { ClientOptions } from "./calls.js";
import { PressroomError } from "./errors.js";

const URL_VARIABLE = "PRESSROOM_URL";
const KEY_VARIABLE = "PRESSROOM_KEY";

type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Return the API's URL from the environment, and the options with the API key from the environment.
 * Throws a PressroomError that names each missing variable. A browser has no environment variables.
 */
export function readConnection(options: ClientOptions): [baseUrl: string, options: ClientOptions] {
  const variables = (globalThis as { process?: { env?: Variables } }).process?.env ?? {};
  const baseUrl = variables[URL_VARIABLE];
  const credentials = options.credentials ?? variables[KEY_VARIABLE];
  if (baseUrl && credentials) return [baseUrl, { ...options, credentials }];
  const missing = [...(baseUrl ? [] : [URL_VARIABLE]), ...(credentials ? [] : [KEY_VARIABLE])];
  throw new PressroomError(
    `Set ${missing.join(" and ")} in the environment, or pass the URL and the credentials to the client.`,
  );
}
