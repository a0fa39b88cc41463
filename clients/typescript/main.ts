// One life cycle with the types of openapi-typescript and the client openapi-fetch.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type ErrorCode = components["schemas"]["ErrorCode"];
type Failure = { error?: components["schemas"]["ErrorBody"]; response: Response };

const { LISTINGS_URL, ALICE_KEY, BOB_KEY, CHARLIE_KEY } = process.env;
const withKey = (key: string | undefined) =>
  createClient<paths>({ baseUrl: LISTINGS_URL ?? "", headers: { "X-API-Key": key ?? "" } });
const alice = withKey(ALICE_KEY);

async function create(title: string, price: number): Promise<number> {
  const { data } = await alice.POST("/api/v1/listings", {
    body: { title, content: "Solid heart rimu.", price, price_type: "negotiable" },
  });
  assert(data);
  return data.id;
}

async function read(id: number) {
  const { data, response } = await alice.GET("/api/v1/listings/{id}", { params: { path: { id } } });
  assert(data);
  return { listing: data, tag: response.headers.get("ETag") ?? "" };
}

async function listByPages(): Promise<void> {
  await create("Road bike", 950);
  await create("Guitar", 300);
  const found = new Set<number>();
  let cursor: string | undefined;
  do {
    const { data, response } = await alice.GET("/api/v1/listings", {
      params: { query: { limit: 2, sort: "id", ...(cursor && { cursor }) } },
    });
    assert(data);
    for (const listing of data.listings) found.add(listing.id);
    cursor = response.headers.get("X-Next-Cursor") ?? undefined;
  } while (cursor);
  assert.equal(found.size, 3);
}

async function updateOneField(id: number): Promise<void> {
  const before = await read(id);
  const change = () =>
    alice.PATCH("/api/v1/listings/{id}", {
      params: { path: { id }, header: { "If-Match": before.tag } },
      body: { price: 1100.5 },
    });
  assert.equal((await change()).response.status, 200);
  const after = (await read(id)).listing;
  assert.deepEqual(after, { ...before.listing, price: 1100.5, updated_at: after.updated_at });
  expectError(await change(), 412, "precondition_failed");
}

async function replay(): Promise<void> {
  const send = () =>
    alice.POST("/api/v1/listings", {
      params: { header: { "Idempotency-Key": "lamp-1" } },
      body: { title: "Lamp", content: "Brass." },
    });
  const [first, second] = [await send(), await send()];
  assert.equal(first.data?.id, second.data?.id);
  assert.equal(second.response.headers.get("Idempotent-Replayed"), "true");
}

async function runBatch(id: number): Promise<void> {
  const { data } = await alice.POST("/api/v1/listings/batch", {
    body: {
      operations: [
        { op: "create", ref: "chair", listing: { title: "Chair", content: "Oak." } },
        { op: "update", id, changes: { region: "Otago" } },
        { op: "delete", id: 1 },
        { op: "put", listing: { external_id: "stool", title: "Stool", content: "Oak." } },
        { op: "put", listing: { external_id: "stool", price: 40 } },
      ],
    },
  });
  const [made, changed, failed, first, second] = data?.results ?? [];
  assert(made?.status === 201 && made.body.id && made.ref === "chair");
  assert(changed?.body.message === "listing updated");
  assert(failed?.code === "listing_not_found" && failed.body.error === "Listing not found");
  assert(first?.op === "create" && second?.op === "update" && second.id === first.body.id);
  const planned = await alice.POST("/api/v1/listings/batch", {
    params: { query: { dry_run: true } },
    body: { operations: [{ op: "delete", id }] },
  });
  assert.equal(planned.data?.results[0]?.body.message, "listing would be deleted");
  const whole = await alice.POST("/api/v1/listings", {
    params: { header: { Prefer: "return=representation" } },
    body: { title: "Shelf", content: "Oak." },
  });
  assert.equal(whole.data?.["title"], "Shelf");
}

/** Use codes, actors and kinds that a later version of the service may add. */
function acceptUnknownValues(): void {
  const known: { batch: components["schemas"]["BatchResults"]; changes: components["schemas"]["ChangeSets"] } =
    JSON.parse(readFileSync(process.env["UNKNOWN_VALUES"] ?? "", "utf-8"));
  assert.equal(known.batch.results[0]?.code, "teapot");
  assert.equal(known.changes.change_sets[0]?.actor.type, "agent");
}

async function deleteAndRestore(id: number): Promise<void> {
  const one = { params: { path: { id } } };
  assert((await alice.DELETE("/api/v1/listings/{id}", one)).data);
  expectError(await alice.GET("/api/v1/listings/{id}", one), 404, "listing_not_found");
  assert((await alice.POST("/api/v1/listings/{id}/restore", one)).data);
  assert.equal((await read(id)).listing.is_active, false);
}

async function readErrors(id: number): Promise<void> {
  const one = { params: { path: { id } } };
  expectError(await withKey("wrong").GET("/api/v1/listings/{id}", one), 401, "invalid_api_key");
  expectError(await withKey(CHARLIE_KEY).GET("/api/v1/listings/{id}", one), 403, "plan_expired");
  const bob = withKey(BOB_KEY);
  expectError(await bob.GET("/api/v1/listings/{id}", one), 403, "not_owner");
  let last: Failure = await bob.GET("/api/v1/listings");
  for (let count = 0; count < 100 && last.response.ok; count++) last = await bob.GET("/api/v1/listings");
  expectError(last, 429, "rate_limited");
}

function expectError({ error, response }: Failure, status: number, code: ErrorCode): void {
  assert.deepEqual([response.status, response.headers.get("X-Error-Code")], [status, code]);
  assert(error?.error);
}

const id = await create("Rimu table", 249999.99);
const { listing } = await read(id);
assert.deepEqual([listing.price, listing.price_type], [249999.99, "negotiable"]);
await listByPages();
await updateOneField(id);
await replay();
await runBatch(id);
await deleteAndRestore(id);
await readErrors(id);
acceptUnknownValues();
console.log("typescript: the life cycle is complete");
