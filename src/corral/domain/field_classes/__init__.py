"""Class of every field that is shown: of the API's schemas, of events' data, of log records."""
