"""One queue, without Spark: a room per verb, and `BullQueue`, which has all of them."""
