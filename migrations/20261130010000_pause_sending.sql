-- While a row is here, nobody claims a job: what is accepted waits, and nothing is sent to the provider.
CREATE TABLE pauses (
    kind   text CONSTRAINT pauses_pkey PRIMARY KEY,
    reason text NOT NULL,
    since  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pauses_kind CHECK (kind IN ('operator', 'recovery')),
    CONSTRAINT pauses_reason_length CHECK (char_length(reason) BETWEEN 1 AND 500)
);
COMMENT ON TABLE pauses IS
    'Why sending is held, at most once for each kind of reason; it goes on when the last row is gone.';
COMMENT ON COLUMN pauses.kind IS 'Who holds it: a person, or a recovery that has not yet compared the books with the provider.';
