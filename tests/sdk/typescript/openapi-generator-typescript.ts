// One purchase through the client that openapi-generator's `typescript-fetch` makes.

import assert from "node:assert/strict";
import { ChargesApi, Configuration, type CreateCharge, ProblemFromJSON, ResponseError } from "./client";
import { API_KEY, FOREIGN, KEY, LATER_CHARGE, LATER_PROBLEM, PAYONCE_URL, run, STUB_URL } from "./world";

const chargesAt = (basePath: string) => new ChargesApi(new Configuration({ basePath, accessToken: API_KEY }));

async function refused(call: Promise<unknown>): Promise<Response> {
  const error = await call.then(
    (answer) => assert.fail(`answered: ${JSON.stringify(answer)}`),
    (error) => error,
  );
  assert(error instanceof ResponseError, error);
  return error.response;
}

run(async () => {
  const charges = chargesAt(PAYONCE_URL);
  const createCharge: CreateCharge = { amount: 1999, currency: "usd", paymentMethod: "pm_card_visa" };

  const created = await charges.createChargeRaw({ idempotencyKey: KEY, createCharge });
  assert.equal(created.raw.status, 202);
  assert.equal(created.raw.headers.get("Idempotent-Replayed"), null);
  let charge = await created.value();
  assert.equal(charge.amount, 1999);

  const replayed = await charges.createChargeRaw({ idempotencyKey: KEY, createCharge });
  assert.equal(replayed.raw.status, 200);
  assert.equal(replayed.raw.headers.get("Idempotent-Replayed"), "true");
  assert.equal((await replayed.value()).id, charge.id);

  const reused = await refused(charges.createCharge({ idempotencyKey: KEY, createCharge: { ...createCharge, amount: 2999 } }));
  assert.equal(reused.status, 422);
  const problem = ProblemFromJSON(await reused.json());
  assert.equal(problem.code, "idempotency_key_reused");
  assert.equal(problem.retry, "never");
  assert.equal(problem.chargeId, charge.id);
  assert.deepEqual(problem.errors?.map((error) => error.pointer), ["#/amount"]);

  // Without a key it does not compile, and nothing is sent.
  // @ts-expect-error
  await assert.rejects(charges.createCharge({ createCharge }), { name: "RequiredError" });

  while (charge.status === "in_progress") charge = await charges.getCharge({ id: charge.id, prefer: "wait=20" });
  assert.equal(charge.status, "completed");
  assert.equal(charge.money, "moved");
  assert.equal(charge.failure, undefined);
  assert(charge.finishedAt instanceof Date);

  const page = await charges.listCharges({ idempotencyKey: KEY });
  assert.deepEqual(page.data.map((each) => each.id), [charge.id]);
  assert.equal(page.nextCursor, undefined);

  const stub = chargesAt(STUB_URL);
  const later = await stub.getCharge({ id: LATER_CHARGE });
  assert.equal(later.stage, "expired");
  assert.equal(later.provider, "adyen");
  assert.equal(later.failure?.advice, "ask_the_customer");
  assert.equal(ProblemFromJSON(await (await refused(stub.getCharge({ id: LATER_PROBLEM }))).json()).code, "charge_archived");
  for (const [id, status] of FOREIGN) assert.equal((await refused(stub.getCharge({ id }))).status, status);
});
