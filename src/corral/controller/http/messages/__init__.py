"""Messages of HTTP: requests and their decoding, forms and uploads, responses, pages."""
