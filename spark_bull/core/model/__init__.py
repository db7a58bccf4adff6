"""Jobs, outcomes and limits as plain Python values."""
