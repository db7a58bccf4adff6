"""Jobs as the scripts take them: chunks, fields and flows."""
