-- When somebody last said that they need a blob. There is no index on it, on purpose: a stamp changes
-- often, and collection looks blobs up by their digests.
alter table blob add column stamp timestamptz not null default now();
