// The test hovers over these constants.
import { Pressroom } from "pressroom-client";

const pressroom = new Pressroom("https://press.example.com");

export const list = await pressroom.lists.read({ list_id: 7 });
export const lists = await pressroom.lists.list();
export const created = await pressroom.createList({ body: { title: "Garden", slug: "garden" } });
export const job = await pressroom.jobs.read({ job_id: 7 });
export const progress = job.progress;
export const endpoints = await pressroom.webhookEndpoints.list();
export const change = pressroom.lists.change;
export const charge = pressroom.credits.consume;
