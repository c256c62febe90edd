-- Events that modules published have a share of the log: they are counted, and dropped from among the others.
CREATE INDEX event_of_module ON event (sequence) WHERE type = 'MODULE_EVENT';
