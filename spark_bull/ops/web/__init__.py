"""The REST API and the page of `spark-bull serve`. Needs the extra `web`."""
