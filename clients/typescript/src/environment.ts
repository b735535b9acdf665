import type { ClientOptions } from "./calls.js";
import { SettingMissing } from "./errors.js";

const URL_VARIABLE = "PRESSROOM_URL";
const KEY_VARIABLE = "PRESSROOM_KEY";

type Variables = Readonly<Record<string, string | undefined>>;

/**
 * Return the URL from the environment, and the options with the API key from the environment. The key
 * doesn't replace credentials in the options. Throws SettingMissing if a variable is missing. Browsers
 * have no environment variables.
 */
export function readConnection(options: ClientOptions): [baseUrl: string, options: ClientOptions] {
  const variables = (globalThis as { process?: { env?: Variables } }).process?.env ?? {};
  const baseUrl = variables[URL_VARIABLE];
  const credentials = options.credentials || variables[KEY_VARIABLE];
  if (baseUrl && credentials) return [baseUrl, { ...options, credentials }];
  const missing = [...(baseUrl ? [] : [URL_VARIABLE]), ...(credentials ? [] : [KEY_VARIABLE])];
  throw new SettingMissing(
    `Set ${missing.join(" and ")}, or pass the URL and the API key to the client.`,
  );
}
