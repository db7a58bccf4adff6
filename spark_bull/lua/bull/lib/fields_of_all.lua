-- Number of fields that are read of every job. The other one is read only while jobs of the queue can expire.
local FIELDS_OF_ALL = 10
