"""What differs between Bull 1, Bull and BullMQ: classes, fields, features, and how a dialect is detected."""
