-- Which of the provider's accounts each configured name stands for. A key that opens another one is a mistake, and money in
-- the wrong account: nothing is sent with it.

CREATE TABLE provider_accounts (
    provider text NOT NULL,
    name text NOT NULL,
    account_id text NOT NULL,
    pinned_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (provider, name),
    CONSTRAINT provider_accounts_account_id_key UNIQUE (provider, account_id)
);
COMMENT ON TABLE provider_accounts IS
    'The provider''s account behind each configured one, as the first key under that name opened it; written once, by whoever asks first.';
COMMENT ON COLUMN provider_accounts.provider IS 'stripe';
COMMENT ON COLUMN provider_accounts.name IS 'As in the configuration, and in provider_account of charges.';
COMMENT ON COLUMN provider_accounts.account_id IS
    'The provider''s own id (acct_…). One account under two names is the same mistake as two under one.';
COMMENT ON COLUMN provider_accounts.pinned_at IS 'When a key was first asked whose it is.';
