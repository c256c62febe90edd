-- Documents. A removed one stays as a tombstone (body is null) until it is trimmed. There is no
-- index on the revision, on purpose: it would change with every write. `changes` scans.
CREATE TABLE document (
    collection TEXT NOT NULL,
    id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    body BLOB,
    PRIMARY KEY (collection, id)
);
CREATE INDEX document_tombstone ON document (revision) WHERE body IS NULL;

-- The event log. Times are microseconds since 1970, given by the writer.
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    type TEXT NOT NULL,
    subject TEXT NOT NULL,
    at INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE entry (
    number INTEGER PRIMARY KEY,
    journal TEXT NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX entry_journal ON entry (journal, number);

-- The end of the log, and how the last batch ended: written in that batch's own transaction.
CREATE TABLE head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    commit_number INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    event_epoch INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    batch TEXT NOT NULL,
    outcome BLOB NOT NULL
);
INSERT INTO head VALUES (1, 0, 0, 0, 0, '', x'');

-- How far the log was trimmed: the last event, and the last tombstone's revision.
CREATE TABLE trimmed (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL,
    event_epoch INTEGER NOT NULL,
    tombstone INTEGER NOT NULL
);
INSERT INTO trimmed VALUES (1, 0, 0, 0);

-- The fence. It moves only when leadership is taken; the lease is another row.
CREATE TABLE leader (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL);
INSERT INTO leader VALUES (1, 0);

CREATE TABLE lease (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    counter INTEGER NOT NULL,
    info TEXT NOT NULL
);
