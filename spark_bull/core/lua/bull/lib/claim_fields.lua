-- The fields of a job's hash that a claim reads. A unit test compares them with core/dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'attemptsMade', 'stalledCounter', 'progress', 'stacktrace',
  'priority', 'attempts', 'expireAt'}
