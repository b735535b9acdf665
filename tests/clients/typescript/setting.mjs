// The input of the tests: an API, the key of a new owner, and a proxy that simulates network faults.
import { Pressroom } from "pressroom-client";

export const testInput = JSON.parse(process.env.TEST_INPUT);

export const pressroom = new Pressroom(testInput.api_url, { credentials: testInput.key });

let slugCount = 0;

export function uniqueSlug() {
  return `garden-${process.pid}-${Date.now()}-${slugCount++}`;
}

export async function newList() {
  return (await pressroom.createList({ body: { title: "Garden", slug: uniqueSlug() } })).id;
}

/** Return a client whose calls meet these faults, and a function that lists the received calls. */
export function createFaultyClient(faults, options = {}) {
  const url = `${testInput.network}/${uniqueSlug()}.${faults.join(".")}`;
  const listReceivedCalls = async () => (await fetch(`${url}/seen`)).json();
  const pressroom = new Pressroom(url, { credentials: testInput.key, ...options });
  return { listReceivedCalls, pressroom };
}

/** Return the content of a CSV file with members. */
export function rows(count) {
  return "email\n" + Array.from({ length: count }, (_, n) => `reader${n}@example.com\n`).join("");
}
