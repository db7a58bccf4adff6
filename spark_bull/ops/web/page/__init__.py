"""The page of `spark-bull serve`: HTML that works without JavaScript, and is live with it."""
