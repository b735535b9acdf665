// Compiled, never run: what the types promise, and what they refuse.
import { ApiError, type Page, Pressroom } from "pressroom-client";

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
  try {
    await pressroom.readAttachment({ hash_id: "0123456789ab" });
  } catch (error) {
    if (error instanceof ApiError && error.code === "attachment.not_found") return;
    throw error;
  }
}
