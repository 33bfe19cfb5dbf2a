"""The dashboard: pages for people, made on the server, over the same rows and rules as the API."""
