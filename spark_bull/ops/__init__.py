"""For operators: the command, the page and API, and figures for Prometheus."""
