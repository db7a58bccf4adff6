-- The fields of a job's hash that a claim reads. A unit test compares them with dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'attemptsMade', 'stalledCounter', 'progress', 'stacktrace',
  'priority', 'attempts', 'expireAt'}
-- Number of fields that are read of every job. The other one is read only while jobs of the queue can expire.
local FIELDS_OF_ALL = 10
