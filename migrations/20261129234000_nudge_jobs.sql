-- Somebody has news for the job: whoever holds it lets it run again at once. A nudge that meets a lease is kept by the row,
-- so it can't fall between a holder's look and its last write.
ALTER TABLE outbox ADD COLUMN nudged boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN outbox.nudged IS 'The row runs again as soon as its holder gives it back; cleared then.';
