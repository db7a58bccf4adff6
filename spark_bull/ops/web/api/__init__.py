"""The operations of the REST API, by resource."""
