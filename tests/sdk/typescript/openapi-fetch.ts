// One purchase through openapi-fetch and the types that openapi-typescript makes.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./client/schema";
import { API_KEY, FOREIGN, KEY, LATER_CHARGE, LATER_PROBLEM, PAYONCE_URL, run, STUB_URL } from "./world";

const clientAt = (baseUrl: string) =>
  createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${API_KEY}` } });

run(async () => {
  const client = clientAt(PAYONCE_URL);
  const body: components["schemas"]["CreateCharge"] = { amount: 1999, currency: "usd", payment_method: "pm_card_visa" };
  const header = { "Idempotency-Key": KEY };

  const created = await client.POST("/v1/charges", { params: { header }, body });
  assert(created.data);
  assert.equal(created.response.status, 202);
  assert.equal(created.response.headers.get("Idempotent-Replayed"), null);
  let charge = created.data;
  assert.equal(charge.amount, 1999);

  const replayed = await client.POST("/v1/charges", { params: { header }, body });
  assert.equal(replayed.response.status, 200);
  assert.equal(replayed.response.headers.get("Idempotent-Replayed"), "true");
  assert.equal(replayed.data?.id, charge.id);

  const reused = await client.POST("/v1/charges", { params: { header }, body: { ...body, amount: 2999 } });
  assert(reused.error);
  assert.equal(reused.response.status, 422);
  assert.equal(reused.error.code, "idempotency_key_reused");
  assert.equal(reused.error.retry, "never");
  assert.equal(reused.error.charge_id, charge.id);
  assert.deepEqual(reused.error.errors?.map((error) => error.pointer), ["#/amount"]);

  // Without a key it does not compile; who forces it hears from the service.
  // @ts-expect-error
  const keyless = await client.POST("/v1/charges", { params: { header: {} }, body });
  assert.equal(keyless.response.status, 400);
  assert.equal(keyless.error?.code, "idempotency_key_missing");

  while (charge.status === "in_progress") {
    const read = await client.GET("/v1/charges/{id}", {
      params: { path: { id: charge.id }, header: { Prefer: "wait=20" } },
    });
    assert(read.data);
    charge = read.data;
  }
  assert.equal(charge.status, "completed");
  assert.equal(charge.money, "moved");
  assert.equal(charge.failure, undefined);

  const page = await client.GET("/v1/charges", { params: { query: { idempotency_key: KEY } } });
  assert.deepEqual(page.data?.data.map((each) => each.id), [charge.id]);
  assert.equal(page.data?.next_cursor, undefined);

  const stub = clientAt(STUB_URL);
  const read = (id: string) => stub.GET("/v1/charges/{id}", { params: { path: { id } } });
  const later = await read(LATER_CHARGE);
  assert.equal(later.data?.stage, "expired");
  assert.equal(later.data?.provider, "adyen");
  assert.equal(later.data?.failure?.advice, "ask_the_customer");
  assert.equal((await read(LATER_PROBLEM)).error?.code, "charge_archived");
  for (const [id, status] of FOREIGN) {
    const foreign = await read(id);
    assert.equal(foreign.response.status, status);
    assert.equal(foreign.response.ok, false);
    assert.equal(foreign.data, undefined);
  }
});
