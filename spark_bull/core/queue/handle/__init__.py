"""What all operations on a queue share: its handle, one function per script, walks and reports."""
