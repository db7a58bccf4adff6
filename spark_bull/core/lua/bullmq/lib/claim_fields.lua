-- The fields of a job's hash that a claim reads. A unit test compares them with core/dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'priority', 'ats', 'atm', 'parentKey', 'defa', 'stc',
  'progress', 'stacktrace', 'expireAt'}
