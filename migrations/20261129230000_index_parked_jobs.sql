-- Parked jobs are few and waited for by people: an index that holds nothing else finds them in any backlog.
CREATE INDEX outbox_parked_idx ON outbox (id) WHERE state = 'parked';
