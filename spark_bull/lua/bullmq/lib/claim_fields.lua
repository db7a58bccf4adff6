-- The fields of a job's hash that a claim reads. A unit test compares them with dialects/fields.py.
local CLAIM_FIELDS = {'timestamp', 'data', 'name', 'opts', 'ats', 'atm', 'parentKey', 'defa', 'stc', 'progress',
  'stacktrace', 'priority'}
-- Number of fields that are read of every job. Only a job that was started before or has a priority has the others.
local FIELDS_OF_NEW_JOBS = 8
