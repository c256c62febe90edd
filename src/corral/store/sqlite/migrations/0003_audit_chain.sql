-- The hash chain of the audit: a row for each entry of the journal that is chained. Entries from before have none.
CREATE TABLE chain_link (
    number INTEGER PRIMARY KEY,
    previous BLOB NOT NULL,
    hash BLOB NOT NULL
);

-- The first and the newest entry of the chain, and the last that retention removed; 0 and null: none.
CREATE TABLE chain (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    first INTEGER NOT NULL,
    number INTEGER NOT NULL,
    hash BLOB,
    removed_number INTEGER NOT NULL,
    removed_hash BLOB
);
INSERT INTO chain VALUES (1, 0, 0, NULL, 0, NULL);
