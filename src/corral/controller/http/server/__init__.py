"""The HTTP server of the API: uvicorn, its connections and their limits, the access log, metrics."""
