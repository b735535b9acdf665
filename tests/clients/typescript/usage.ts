// The test compiles this file, but never runs it, to check which code the types accept and reject.
import {
  ApiError,
  type components,
  type FieldChanges,
  type ListChanges,
  type MailingList,
  type MemberChanges,
  type MemberSearch,
  type MemberUpsert,
  type NewExport,
  type NewField,
  type NewSubscription,
  type Page,
  Pressroom,
  type SegmentChanges,
} from "pressroom-client";

export async function use(pressroom: Pressroom): Promise<void> {
  const list = await pressroom.readList({ list_id: 7 });
  const title: string = list.title;
  await pressroom.readList({ list_id: "garden" });
  // @ts-expect-error a list has no such field
  list.titel;
  const page: Page<{ email: string | null }> = await pressroom.listMembers({ list_id: list.id, limit: 10 });
  for await (const member of pressroom.listMembers({ list_id: list.id })) {
    const name: string | null = member.name;
    console.log(name, title, page.items.length);
  }
  // @ts-expect-error a list has a title
  await pressroom.createList({ body: { slug: "garden" } });
  // @ts-expect-error a limit is a number
  pressroom.listMembers({ list_id: 7, limit: "ten" });
  // @ts-expect-error an upload needs a file
  await pressroom.uploadAttachment({});
  await pressroom.createList({ body: { title: "Garden", slug: "garden" } });
  await pressroom.changeList({ list_id: list.id, body: { colour: "#1d4ed8" } });
  const garden: MailingList = await pressroom.lists.create({ body: { title: "Garden", slug: "garden" } });
  const sameGarden: components["schemas"]["Channel"] = garden;
  // Fields of requests with a default value are optional.
  const field: NewField = { key: "city", label: "City", type: "text" };
  const exported: NewExport = { kind: "members" };
  const search: MemberSearch = { filter: { field: "email", exists: true } };
  const upsert: MemberUpsert = { name: "Ada" };
  const subscription: NewSubscription = { email: "ada@example.com" };
  const changes: [ListChanges, MemberChanges, FieldChanges, SegmentChanges] = [{}, {}, {}, {}];
  console.log(sameGarden, field, exported, search, upsert, subscription, changes);
  // @ts-expect-error a resource has no method of a deprecated operation
  await pressroom.account.checkHealth();
  try {
    await pressroom.readAttachment({ hash_id: "0123456789ab" });
  } catch (error) {
    if (error instanceof ApiError && error.code === "attachment.not_found") return;
    throw error;
  }
}
