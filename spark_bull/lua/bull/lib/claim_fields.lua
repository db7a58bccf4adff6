-- The fields of a job's hash that a claim reads. A unit test compares them with dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'ats', 'attemptsMade', 'parentKey', 'defa', 'stalledCounter',
  'progress', 'stacktrace', 'priority', 'attempts'}
