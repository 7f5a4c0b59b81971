-- Several accounts at the provider by name, each merchant on one. A charge's account is decided at acceptance; without a
-- name it is the default account of whoever runs it, as of every row that is here now.

ALTER TABLE merchants ADD COLUMN provider_account text;
COMMENT ON COLUMN merchants.provider_account IS
    'The configured account that its new charges are made in; none for the default one.';

-- An account without an object: where the object is to be made.
ALTER TABLE charges
    DROP CONSTRAINT charges_object_has_account,
    ADD CONSTRAINT charges_object_has_account CHECK (provider_charge_id IS NULL OR provider_account IS NOT NULL) NOT VALID;
COMMENT ON COLUMN charges.provider_account IS
    'The configured account that holds the object or is to hold it: set at acceptance if the merchant has one, else with the object''s id.';

ALTER TABLE outbox ADD COLUMN provider_account text;
COMMENT ON COLUMN outbox.provider_account IS
    'The account that the job is for, as its charge or refund names it, so that claims can pass by accounts that do not answer; none for the default one.';
-- Only what names an account pays for it. Ready is what is neither leased nor parked, said in other words than those of
-- outbox_ready_idx: a claim of one account that says it so can't be planned over that one, past all jobs of the others.
CREATE INDEX outbox_account_ready_idx ON outbox (provider_account, run_at, id)
    WHERE state NOT IN ('leased', 'parked') AND provider_account IS NOT NULL;
