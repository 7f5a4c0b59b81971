// Where the services are, and what the stub answers for which id.

function env(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set`);
  return value;
}

export const PAYONCE_URL = env("PAYONCE_URL");
export const STUB_URL = env("STUB_URL");
export const KEY = env("IDEMPOTENCY_KEY");
export const API_KEY = "po_dev_key";

const [LATER_CHARGE, PROXY_503, EMPTY_404, LATER_PROBLEM, TEAPOT_418] = [..."12345"].map(
  (digit) => `chg_${"0".repeat(31)}${digit}`,
) as [string, string, string, string, string];
export { LATER_CHARGE, LATER_PROBLEM };
export const FOREIGN: [string, number][] = [
  [PROXY_503, 503],
  [EMPTY_404, 404],
  [TEAPOT_418, 418],
];

export function run(scenario: () => Promise<void>): void {
  scenario().catch((error) => {
    console.error(error);
    process.exitCode = 1;
  });
}
