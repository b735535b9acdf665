// What the tests are given: an API, the key of a new owner, and a way to the API that loses answers.
import { Pressroom } from "pressroom-client";

export const given = JSON.parse(process.env.GIVEN);

export const pressroom = new Pressroom(given.api_url, { credentials: given.key });

let names = 0;

export function uniqueSlug() {
  return `garden-${process.pid}-${Date.now()}-${names++}`;
}

export async function newList() {
  return (await pressroom.createList({ body: { title: "Garden", slug: uniqueSlug() } })).id;
}

/** A client whose calls meet these faults, and what of them arrived. */
export function wayWith(faults, options = {}) {
  const url = `${given.network}/${uniqueSlug()}.${faults.join(".")}`;
  const seen = async () => (await fetch(`${url}/seen`)).json();
  return { seen, pressroom: new Pressroom(url, { credentials: given.key, ...options }) };
}

/** The lines of a file of members. */
export function rows(count) {
  return "email\n" + Array.from({ length: count }, (_, n) => `reader${n}@example.com\n`).join("");
}
